"""The core, importable by all packages: values, errors, backend interface; no transport."""
