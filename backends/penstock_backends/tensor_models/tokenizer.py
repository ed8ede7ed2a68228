"""`Tokenizer`: converts batches of texts to padded arrays of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.backend import (
    Array,
    BackendNotInstalledError,
    ModelConfig,
    ModelLoadError,
)
from penstock_backends.tensor_models.long_texts import (
    MAX_TOKENS,
    LongTexts,
    Pair,
    Tokens,
    positive,
)

TOKENIZER = "penstock.tokenizer"
PAD_TOKENS = ("[PAD]", "<pad>")


class Tokenizer:
    """Truncates as its file or `penstock.max_tokens` defines; pads to the longest text joined.

    `texts` bounds what it is given.
    """

    def __init__(self, inner: Any, config: ModelConfig) -> None:
        padding = inner.padding or {}
        self._pad_id: int = padding.get("pad_id", _pad_id(inner))
        self._pads_left = padding.get("direction") == "left"
        inner.no_padding()
        self._inner = inner
        self.texts = LongTexts(config, inner)

    @classmethod
    def load(cls, config: ModelConfig, name: str, version_path: Path) -> Tokenizer:
        """Load the file `name` in the version's directory, or in the model's."""
        inner = _open(find_tokenizer(name, version_path))
        if longest := positive(config, MAX_TOKENS):
            inner.enable_truncation(max_length=longest)
        return cls(inner, config)

    def encode(self, texts: Sequence[str | Pair | Tokens]) -> list[Tokens]:
        """The tokens of every text or pair that `LongTexts` has read. Releases the GIL."""
        short = [text for text in texts if not isinstance(text, Tokens)]
        made = (Tokens(e.ids, e.type_ids) for e in self._inner.encode_batch_fast(short))
        return [text if isinstance(text, Tokens) else next(made) for text in texts]

    def feeds(self, tokens: Sequence[Tokens]) -> dict[str, Array]:
        """Arrays of one row per text, by the usual names of a graph's inputs."""
        width = max([1, *(len(one.ids) for one in tokens)])
        shape = (len(tokens), width)
        arrays = {
            "input_ids": np.full(shape, self._pad_id, np.int64),
            "attention_mask": np.zeros(shape, np.int64),
            "token_type_ids": np.zeros(shape, np.int64),
        }
        for row, one in enumerate(tokens):
            count = len(one.ids)
            where = slice(width - count, width) if self._pads_left else slice(count)
            arrays["input_ids"][row, where] = one.ids
            arrays["attention_mask"][row, where] = 1
            arrays["token_type_ids"][row, where] = one.type_ids
        return arrays


def find_tokenizer(name: str, version_path: Path) -> Path:
    """The file of a tokenizer, in the version's folder or the model's; raises `ModelLoadError`."""
    for folder in (version_path, version_path.parent):
        if (folder / name).is_file():
            return folder / name
    raise ModelLoadError(
        f"parameter '{TOKENIZER}': file {name} is neither in {version_path} nor above it"
    )


def _open(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer as Inner
    except ImportError as error:
        raise BackendNotInstalledError(
            "text encoders need a package that is not installed; install it with: "
            "pip install 'penstock[onnx]'"
        ) from error
    try:
        return Inner.from_file(str(path))
    except Exception as error:  # the package raises plain `Exception`
        raise ModelLoadError(f"file {path} is not a tokenizer: {error}") from error


def _pad_id(inner: Any) -> int:
    ids = (inner.token_to_id(token) for token in PAD_TOKENS)
    return next((number for number in ids if number is not None), 0)
