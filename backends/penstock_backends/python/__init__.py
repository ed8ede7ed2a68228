"""Models written in Python: `model.py` files made for Triton's Python backend run unchanged."""

from penstock_backends.python.backend import PythonBackend

__all__ = ["PythonBackend"]
