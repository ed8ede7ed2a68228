"""Tokenizers that a model's configuration or the server's settings name, to count tokens of models
that take text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.backend import BackendNotInstalledError, ModelLoadError


def load_tokenizer(path: Path) -> Any:
    """A tokenizer of the package `tokenizers`.

    `path` is its file, or the folder of `tokenizer.json`. Raises `ModelLoadError`.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise BackendNotInstalledError(
            "a tokenizer needs a package that is not installed: pip install tokenizers"
        ) from error
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises plain `Exception`
        raise ModelLoadError(f"file {file} is not a tokenizer: {error}") from error
