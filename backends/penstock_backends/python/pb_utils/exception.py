"""The exception of Triton's module."""

from __future__ import annotations


class TritonModelException(Exception):  # noqa: N818 (the name is Triton's)
    """Raised by a model to refuse its configuration or a batch, and by `pb_utils` to refuse a
    request of the model (contract PY-20)."""
