"""Reads files that a model's configuration names."""

from __future__ import annotations

from os import fsencode
from os.path import normpath
from pathlib import Path

from penstock.core.errors import InternalError


def read_named(folder: Path, name: str) -> bytes:
    """The content of a file by its name below the model's folder, which errors do not tell.

    The name of a file that is not UTF-8 stands in configurations without the bytes that are not.
    """
    path = Path(folder, name)
    try:
        return (path if path.exists() else _in_other_encoding(path)).read_bytes()
    except OSError as error:
        raise InternalError(
            f"failed to open text file for read {normpath(name)}: {error.strerror}"
        ) from error


def _in_other_encoding(path: Path) -> Path:
    """The only file whose name is that of the path and further bytes that are not UTF-8, if any."""
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    found = [file for file in beside if _text(file.name) == path.name != file.name]
    return found[0] if len(found) == 1 else path


def _text(name: str) -> str:
    return fsencode(name).decode("utf-8", "ignore")
