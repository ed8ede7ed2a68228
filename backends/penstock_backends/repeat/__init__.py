"""The repeat backend: a decoupled model with one response per input element. For stream tests."""

from penstock_backends.repeat.backend import RepeatBackend

__all__ = ["RepeatBackend"]
