"""`KeptModel`: a model as ONNX Runtime has optimised it, kept in a folder for the next start."""

from __future__ import annotations

import os
import platform
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from hashlib import file_digest, sha256
from pathlib import Path
from tempfile import mkstemp

_DIGITS = 32


class KeptModel:
    """The optimised form of one model: a file named by what it is made from, and by its content.

    So a file that was damaged, or made from something else, is not found.
    """

    def __init__(self, folder: Path, model: str, key: str) -> None:
        self._folder = folder
        self._stem = f"{model}-{key}-"

    def find(self) -> Path | None:
        """The file, if there is a sound one; raises `OSError`."""
        return next((file for file in self._files() if self._named(file) == file), None)

    @contextmanager
    def made(self) -> Iterator[Path]:
        """A path to write the file to, which is kept if nothing is raised; raises `OSError`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        handle, name = mkstemp(".tmp", self._stem, self._folder)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            named = self._named(temporary)
            for other in self._files():
                if other != named:
                    other.unlink(missing_ok=True)
            temporary.replace(named)
        finally:
            temporary.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        names = sorted(os.listdir(self._folder))
        return [self._folder / n for n in names if n.startswith(self._stem) and n.endswith(".onnx")]

    def _named(self, file: Path) -> Path:
        """Where a file of this content belongs."""
        with file.open("rb") as content:
            digest = file_digest(content, "sha256").hexdigest()[:_DIGITS]
        return self._folder / f"{self._stem}{digest}.onnx"


def key_of(path: Path, *how: Hashable) -> str:
    """The digest of a model's file and its neighbours, of this machine's CPU, and of `how`.

    The neighbours may be the model's external data, which can be large: they count by size and
    time.
    """
    stats = [(file.name, file.stat()) for file in sorted(path.parent.iterdir()) if file.is_file()]
    around = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats if name != path.name]
    digest = sha256(repr((around, platform.machine(), _instructions(), how)).encode())
    with path.open("rb") as content:
        digest.update(file_digest(content, "sha256").digest())
    return digest.hexdigest()[:_DIGITS]


def _instructions() -> str:
    """The instructions that the CPU has, for which layouts are chosen."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
