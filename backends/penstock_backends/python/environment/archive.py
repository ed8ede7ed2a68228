"""Archives that hold a Python environment."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from pathlib import Path

_DAMAGE = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError)
"""What reading a damaged archive raises, compressed or not."""


def extract(archive: Path, target: Path) -> None:
    """Unpack it below `target`; raises `ValueError` when it is damaged, or reaches out of there."""
    try:
        with tarfile.open(archive) as contents:
            contents.extractall(target, filter="tar")
            _read_on(contents)
    except _DAMAGE as error:
        raise ValueError(str(error)) from error


def _read_on(contents: tarfile.TarFile) -> None:
    """Read to the end, where the checksums are: a damaged member looks as if it were the end."""
    assert contents.fileobj is not None
    while contents.fileobj.read(1 << 20):
        pass
