"""The square backend: a decoupled model that sends a number as often as it says. For tests."""

from penstock_backends.square.backend import SquareBackend

__all__ = ["SquareBackend"]
