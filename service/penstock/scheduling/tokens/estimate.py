"""Estimates of prompt tokens, before anything is tokenised: from bytes, by what was counted."""

from __future__ import annotations

from math import ceil
from typing import Final

from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType

_TEXT: Final = "text_input"
_IDS: Final = "input_ids"
_LENGTH: Final = 4
"""Bytes of the length in front of a text, and those of a token id."""


def prompt_bytes(request: InferenceRequest) -> int:
    """Bytes of the text of the prompt; 0 where it comes as token ids.

    Of an exchange over HTTP, those of its body.
    """
    if request.exchange is not None:
        return len(request.exchange.body)
    text = request.inputs.get(_TEXT)
    if text is None or text.datatype is not DataType.BYTES:
        return 0
    return max(text.nbytes - _LENGTH, 0)


def prompt_ids(request: InferenceRequest) -> int:
    """Number of token ids that the prompt comes as."""
    ids = request.inputs.get(_IDS)
    return 0 if ids is None else ids.nbytes // _LENGTH


class TokenRatio:
    """The tokens for each byte of a model's prompts: a moving ratio that begins at 1 / 4."""

    _KEPT: Final = 0.95
    """Share of the former observations that stays with each new one: about 20 requests."""

    def __init__(self) -> None:
        self._bytes = 4096.0
        self._tokens = 1024.0

    def observe(self, size: int, tokens: int) -> None:
        """The engine has counted so many tokens in a text of `size` bytes."""
        if size > 0 < tokens:
            self._bytes = self._bytes * self._KEPT + size
            self._tokens = self._tokens * self._KEPT + tokens

    def estimate(self, size: int) -> int:
        """Tokens that a text of `size` bytes probably has; at least 1."""
        return max(1, ceil(size * self._tokens / self._bytes))
