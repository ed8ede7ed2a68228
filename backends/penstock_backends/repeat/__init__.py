"""Repeat: a decoupled model that sends one response per element of its input. For stream tests."""

from penstock_backends.repeat.backend import RepeatBackend

__all__ = ["RepeatBackend"]
