"""Text token by token is the text of the tokens together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_backends.language_model import Detokenizer

tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture(scope="session")
def tokenizer(gguf_version: Path) -> Any:
    return tokenizers.Tokenizer.from_file(str(gguf_version / "tokenizer.json"))


def steps(tokenizer: Any, tokens: list[int], prompt: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer, prompt)
    return [detokenizer.step(token) for token in tokens]


@given(text=st.text(), prompt=st.text())
def test_a_text_comes_back_whatever_the_prompt_ends_with(
    tokenizer: Any, text: str, prompt: str
) -> None:
    tokens = tokenizer.encode(text).ids
    shown = "".join(steps(tokenizer, tokens, tokenizer.encode(prompt).ids))
    whole = tokenizer.decode(tokens)
    assert shown == whole or "\ufffd" in whole


@given(st.lists(st.integers(0, 1000)), st.lists(st.integers(0, 1000), max_size=30))
def test_any_tokens_at_all_are_survived(
    tokenizer: Any, tokens: list[int], prompt: list[int]
) -> None:
    assert len(steps(tokenizer, tokens, prompt)) == len(tokens)


def test_a_character_comes_when_it_is_complete(tokenizer: Any) -> None:
    tokens = tokenizer.encode("🦉").ids
    pieces = steps(tokenizer, tokens, [])
    assert (pieces[:-1], pieces[-1]) == ([""] * (len(tokens) - 1), "🦉")
    assert len(tokens) > 1


def test_special_tokens_can_be_shown(tokenizer: Any) -> None:
    special = tokenizer.get_added_tokens_decoder()
    number, token = next((n, t.content) for n, t in special.items() if t.special)
    assert Detokenizer(tokenizer, [], skip_special_tokens=True).step(number) == ""
    assert Detokenizer(tokenizer, [], skip_special_tokens=False).step(number) == token


def test_a_metaspace_token_keeps_its_space_after_a_prompt() -> None:
    """Decoded alone, the first word would lose the space before it."""
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"▁one": 0, "▁two": 1, "?": 2}, unk_token="?")
    )
    words.decoder = tokenizers.decoders.Metaspace()
    assert Detokenizer(words, [0]).step(1) == " two"
    assert Detokenizer(words, []).step(1) == "two"
