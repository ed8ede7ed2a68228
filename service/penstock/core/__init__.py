"""What everybody may import: values, errors and the backend interface. No transport, no framework."""
