"""Extraction of archives that hold a Python environment."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from pathlib import Path

_DAMAGE = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError)
"""Exceptions that a damaged archive raises, compressed or not."""


def extract(archive: Path, target: Path) -> None:
    """Unpack it below `target`; raises `ValueError` if it is damaged or has members outside."""
    try:
        with tarfile.open(archive) as contents:
            contents.extractall(target, filter="tar")
            _read_to_end(contents)
    except _DAMAGE as error:
        raise ValueError(str(error)) from error


def _read_to_end(contents: tarfile.TarFile) -> None:
    """Verify the checksums, which are at the end: a damaged member looks like the end."""
    assert contents.fileobj is not None
    while contents.fileobj.read(1 << 20):
        pass
