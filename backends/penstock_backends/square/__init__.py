"""The square backend: a decoupled model that answers IN = n with n responses. For tests."""

from penstock_backends.square.backend import SquareBackend

__all__ = ["SquareBackend"]
