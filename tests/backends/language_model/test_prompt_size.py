"""Prompts that are far too long cost no more than those that just fit."""

from __future__ import annotations

import pytest

from penstock.core.errors import InvalidRequestError
from penstock_backends.language_model import check_long_prompt


def test_a_prompt_that_is_far_too_long_is_counted_no_further_than_needed() -> None:
    pieces: list[str] = []

    def count(text: str) -> int:
        pieces.append(text)
        return 300

    with pytest.raises(
        InvalidRequestError, match=r"about 600 or more tokens, but .* is 512 tokens"
    ):
        check_long_prompt("x" * 1_000_000, count, 512)
    assert len(pieces) == 2


def test_a_prompt_of_long_tokens_is_counted_whole() -> None:
    pieces: list[str] = []

    def count(text: str) -> int:
        pieces.append(text)
        return 10

    check_long_prompt("x" * 100_000, count, 512)
    assert "".join(pieces) == "x" * 100_000
    check_long_prompt("x" * 4096, count, 512)
    assert len(pieces) == 4
