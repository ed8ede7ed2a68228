"""Long texts: no more of them is tokenized than it takes to know the tokens that a model reads."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.backend import ConfigError, InvalidRequestError, ModelConfig

MAX_TOKENS: Final = "penstock.max_tokens"
MAX_CHARACTERS: Final = "penstock.max_text_characters"
MAX_TEXTS: Final = "penstock.max_texts"

_TEXTS: Final = 4096
"""The texts of a request, unless the model or its batch size says more."""
_CHARACTERS: Final = 1 << 16
"""The characters of a text where the tokenizer does not truncate."""
_LEAST_CHARACTERS: Final = 1 << 14
_MOST_OF_A_TOKEN: Final = 64
"""Where it does: what may be tokenized in all, at least and for each token that is kept."""
_FIRST: Final = 1 << 10
_OF_A_TOKEN: Final = 8
"""Characters that are tokenized first, and those of a token: more than most texts have."""
_BYTES: Final = 4
"""Bytes of a character, at most."""

_NEAR: Final = 16
_FAR: Final = 128
"""Tokens before a cut that it may change: between words, and within one.

Those within a word are at most 100: a longer one is a single unknown token to a WordPiece model.
"""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one text."""

    ids: Sequence[int]
    type_ids: Sequence[int]


Pair = tuple[str, str]
"""Two texts that a model reads together, such as a question and a passage."""


class LongTexts:
    """The bounds of texts, and of how many of them a request may have.

    Where the tokenizer `inner` truncates, of a long text a part is tokenized that has more tokens
    than are kept: those kept are the ones of the whole text, as a cut changes the last few only.
    """

    def __init__(self, config: ModelConfig, inner: Any) -> None:
        truncation = inner.truncation or {}
        kept: int = truncation.get("max_length", 0)
        self._from_left = truncation.get("direction") == "left"
        self._inner = inner
        self._cuts = bool(truncation)
        usual = max(_LEAST_CHARACTERS, _MOST_OF_A_TOKEN * kept) if self._cuts else _CHARACTERS
        self._most = positive(config, MAX_CHARACTERS) or usual
        self._first = min(_FIRST + _OF_A_TOKEN * kept, self._most) if self._cuts else self._most
        self._texts = max(positive(config, MAX_TEXTS) or _TEXTS, config.max_batch_size)

    def check_count(self, count: int) -> None:
        """Refuse more texts than a request may have."""
        if count > self._texts:
            raise InvalidRequestError(
                f"the request has {count} texts, more than the {self._texts} that the model takes;"
                f" its parameter '{MAX_TEXTS}' increases that"
            )

    def decoded(self, text: bytes) -> str:
        """As much of a text in UTF-8 as may be tokenized, and a character more."""
        if len(text) > self._most * _BYTES:
            if not self._cuts:
                raise self._too_long(f"{len(text)} bytes")
            if not self._from_left:
                part = text[: (self._most + 1) * _BYTES]
                return codecs.getincrementaldecoder("utf-8")().decode(part)
        return text.decode()

    def read(self, texts: Sequence[str]) -> list[str | Tokens]:
        """The texts of a request, the tokens in place of each that is long.

        Raises `InvalidRequestError` where they are not found in as much as may be tokenized.
        """
        spent = _Spent(self._most)
        return [
            text if len(text) <= self._first else self._shortened(text, spent)[1] for text in texts
        ]

    def read_pairs(self, pairs: Sequence[Pair]) -> list[Pair]:
        """The pairs of a request, of each long text as much as has more tokens than are kept.

        They are cut together then, to the tokens of the whole; but where both of a pair are long
        and an odd number is kept, either may get the last of it. Raises as `read`.
        """
        spent = _Spent(self._most)

        def side(text: str) -> str:
            return text if len(text) <= self._first else self._shortened(text, spent)[0]

        return [(side(one), side(other)) for one, other in pairs]

    def _shortened(self, text: str, spent: _Spent) -> tuple[str, Tokens]:
        """The part of a long text that has more tokens than are kept, and those that are."""
        if not self._cuts:
            raise self._too_long(f"{len(text)} characters")
        found = self._cut(text, self._first)
        if found is None and spent.take(size := min(len(text), self._most)):
            found = self._cut(text, size)
        if found is None:
            raise self._too_long(f"{len(text)} characters or more")
        return found

    def _cut(self, text: str, size: int) -> tuple[str, Tokens] | None:
        """The tokens of a text, made of so many characters; `None` if these have too few."""
        part, changed = self._part(text, size)
        (made,) = self._inner.encode_batch_fast([part])
        cut = sum(len(one.ids) - sum(one.special_tokens_mask) for one in made.overflowing)
        return None if cut < changed else (part, Tokens(made.ids, made.type_ids))

    def _part(self, text: str, size: int) -> tuple[str, int]:
        """The part of a text that is kept, and the tokens that its end may change.

        It ends between two words, if there are any in its second half.
        """
        if len(text) <= size:
            return text, 0
        if self._from_left:
            part = text[-size:]
            at = part.find(" ", 0, size // 2)
            return (part, _FAR) if at < 0 else (part[at:], _NEAR)
        part = text[:size]
        at = part.rfind(" ", size // 2)
        return (part, _FAR) if at < 0 else (part[:at], _NEAR)

    def _too_long(self, size: str) -> InvalidRequestError:
        problem = f"a text of {size} is too long: the model takes {self._most} characters"
        if self._cuts:
            problem = (
                f"a text of {size} is too long: what may be tokenized of the texts of a request,"
                f" {self._most} characters, has fewer tokens than the model reads"
            )
        return InvalidRequestError(f"{problem}; its parameter '{MAX_CHARACTERS}' increases that")


class _Spent:
    """The characters that may still be tokenized of the long texts of a request."""

    def __init__(self, left: int) -> None:
        self._left = left

    def take(self, characters: int) -> bool:
        self._left -= characters
        return self._left >= 0


def positive(config: ModelConfig, name: str) -> int:
    """The value of a parameter; 0 when it is not given."""
    text = config.parameter(name)
    if text is None:
        return 0
    if not text.isdecimal() or not int(text):
        raise ConfigError(f"parameter '{name}' must be a positive number, not '{text}'")
    return int(text)
