"""Streaming detokenizer: text from tokens one by one, without splitting characters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.decoders import DecodeStream

_CONTEXT = range(4, 24)
"""The number of the prompt's last tokens that can affect the text."""


class Detokenizer:
    """Decodes the text of one sequence, token by token.

    It starts with the prompt's last tokens, since the leading space of a token can depend on the
    tokens before it.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt: Sequence[int] = (), *, skip_special_tokens: bool = True
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self.begin(prompt)

    def begin(self, prompt: Sequence[int]) -> None:
        """Start behind a prompt."""
        self._restart()
        for token in self._context(prompt):
            self.step(token)

    def step(self, token: int) -> str:
        """The text that `token` completes; empty while a character is incomplete."""
        try:
            return self._stream.step(self._tokenizer, token) or ""
        except Exception as error:
            # Some byte sequences break the decode stream for good; start a new one here.
            if "Invalid prefix" not in str(error):
                raise
            self._restart()
            return self._stream.step(self._tokenizer, token) or ""

    def _restart(self) -> None:
        self._stream = _decode_stream()(skip_special_tokens=self._skip_special_tokens)

    def _context(self, prompt: Sequence[int]) -> Sequence[int]:
        """The shortest suffix of the prompt that begins with a whole character."""
        for length in _CONTEXT:
            tail = prompt[-length:]
            if length >= len(prompt) or "\ufffd" not in self._tokenizer.decode(tail):
                return tail
        return ()


@cache
def _decode_stream() -> type[DecodeStream]:
    """The class, which is imported late: the package is an engine's."""
    from tokenizers.decoders import DecodeStream

    return DecodeStream
