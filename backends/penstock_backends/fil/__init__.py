"""Forests of decision trees, as Triton's FIL backend serves them, on treelite."""

from penstock_backends.fil.backend import FilBackend

__all__ = ["FilBackend"]
