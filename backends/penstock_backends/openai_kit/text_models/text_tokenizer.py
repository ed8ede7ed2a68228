"""`TextTokenizer`: the tokenizer that the configuration of a text model names, or the server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from penstock.backend import BackendNotInstalledError, ModelLoadError
from penstock_backends.language_model import PromptTokens

_MOST: Final = 1 << 30
"""Tokens of a text; bodies are shorter."""


class TextTokenizer:
    """Counts tokens of texts, and has the special tokens and the template of its folder.

    `inner` is one of the package `tokenizers`.
    """

    def __init__(self, inner: Any, folder: Path) -> None:
        self._inner = inner
        self._prompts = PromptTokens(inner, asyncio.to_thread, _MOST)
        self.folder = folder

    @classmethod
    def load(cls, path: Path) -> TextTokenizer:
        """Read the file `path`, or `tokenizer.json` of that folder; raises `ModelLoadError`."""
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise BackendNotInstalledError(
                "a tokenizer needs a package that is not installed: pip install tokenizers"
            ) from error
        file = path / "tokenizer.json" if path.is_dir() else path
        try:
            return cls(Tokenizer.from_file(str(file)), file.parent)
        except Exception as error:  # the package raises plain `Exception`
            raise ModelLoadError(f"file {file} is not a tokenizer: {error}") from error

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return int(self._inner.get_vocab_size())

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The tokens of a text."""
        return list(self._inner.encode(text, add_special_tokens=add_special_tokens).ids)

    async def encode_prompt(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The same, of a long text on a thread."""
        return await self._prompts.encode_async(text, special=add_special_tokens)

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of tokens."""
        return str(self._inner.decode(tokens, skip_special_tokens=skip_special_tokens))

    def token_text(self, token: int) -> str:
        """A token as it stands in the vocabulary."""
        return str(self._inner.id_to_token(token))


class NoTokenizer:
    """The place of a tokenizer that nobody has named: no text has tokens."""

    vocabulary = 0

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return []

    async def encode_prompt(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return []

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        return ""

    def token_text(self, token: int) -> str:
        return ""
