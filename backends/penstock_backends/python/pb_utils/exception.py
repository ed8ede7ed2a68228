"""The exception of Triton's module."""

from __future__ import annotations


class TritonModelException(Exception):  # noqa: N818 (the name is Triton's)
    """What a model raises to refuse its configuration or a batch, and `pb_utils` to refuse what
    the model asks of it (contract PY-20)."""
