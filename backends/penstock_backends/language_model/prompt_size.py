"""Prompts that are far too long, refused before all of their tokens are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.backend import InvalidRequestError

_CHARACTERS: Final = 8
"""Characters of a token that a prompt may have on average before it is counted in pieces."""
_PIECE: Final = 1 << 15
"""Characters that are counted at once."""
_CERTAIN: Final = 1.1
"""Cuts between pieces can make a few more tokens than the whole has, but not so many more."""


def check_long_prompt(prompt: str, count: Callable[[str], int], limit: int) -> None:
    """Reject a prompt of far more tokens than `limit`, without tokenizing more than that many.

    Others wait while a prompt is tokenized. `count` returns the number of tokens of a piece. Raises
    `InvalidRequestError`.
    """
    if len(prompt) <= limit * _CHARACTERS:
        return
    counted = 0
    for start in range(0, len(prompt), _PIECE):
        counted += count(prompt[start : start + _PIECE])
        if counted > limit * _CERTAIN:
            raise InvalidRequestError(
                f"the prompt has about {counted} or more tokens, but the model's context length "
                f"is {limit} tokens"
            )
