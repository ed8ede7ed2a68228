"""`KeptModel`: a model as ONNX Runtime has optimised it, kept in a folder for the next start."""

from __future__ import annotations

import os
import platform
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from hashlib import file_digest, sha256
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import mkstemp

_DIGITS = 40


class KeptModel:
    """The optimised form of one model: a file named by what it is made from, and by its size.

    So what was made from something else is not found, nor a file that was cut.
    """

    def __init__(self, folder: Path, model: str, key: str) -> None:
        self._folder = folder
        self._stem = f"{model}-{key}-"

    def find(self) -> Path | None:
        """The file, if there is one of its size; raises `OSError`."""
        return next((file for file in self._files() if self._named(file) == file), None)

    @contextmanager
    def made(self) -> Iterator[Path]:
        """A path to write the file to, which is kept if nothing is raised; raises `OSError`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        handle, name = mkstemp(".tmp", self._stem, self._folder)
        temporary = Path(name)
        try:
            yield temporary
            os.fsync(handle)  # so that it has its content when it has its name
            self.discard()
            temporary.replace(self._named(temporary))
        finally:
            os.close(handle)
            temporary.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove the file; raises `OSError`."""
        for file in self._files():
            file.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        names = os.listdir(self._folder)
        return [self._folder / n for n in names if n.startswith(self._stem) and n.endswith(".onnx")]

    def _named(self, file: Path) -> Path:
        """Where a file of this size belongs."""
        return self._folder / f"{self._stem}{file.stat().st_size}.onnx"


def key_of(path: Path, *how: Hashable) -> str:
    """The digest of a model's file and of its data, of this machine's CPU, and of `how`.

    Its data are the files below its folder whose names it has. Times do not count: they may be the
    same for every file of an image.
    """
    digest = sha256(repr((platform.machine(), _instructions(), how)).encode())
    for file in [path, *_data(path)]:
        with file.open("rb") as content:
            digest.update(file.name.encode())
            digest.update(file_digest(content, "sha256").digest())
    return digest.hexdigest()[:_DIGITS]


def _data(path: Path) -> list[Path]:
    others = [file for file in sorted(path.parent.rglob("*")) if file.is_file() and file != path]
    if not others or not path.stat().st_size:
        return []
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        if content.find(b"location") < 0:  # as ONNX calls the name of such a file
            return []
        return [other for other in others if content.find(os.fsencode(other.name)) >= 0]


def _instructions() -> str:
    """The instructions that the CPU has, for which layouts are chosen."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
