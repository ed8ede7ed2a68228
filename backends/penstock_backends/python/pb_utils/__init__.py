"""`triton_python_backend_utils` as models see it."""
