"""What everybody may import: values, errors and the backend interface. It knows no transport."""
