"""Reads files that a model's configuration names."""

from __future__ import annotations

from os.path import normpath
from pathlib import Path

from penstock.core.errors import InternalError


def read_named(folder: Path, name: str) -> bytes:
    """The content of a file by its name below the model's folder, which errors do not tell."""
    try:
        return Path(folder, name).read_bytes()
    except OSError as error:
        raise InternalError(
            f"failed to open text file for read {normpath(name)}: {error.strerror}"
        ) from error
