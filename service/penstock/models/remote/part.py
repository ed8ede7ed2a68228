"""`Part`: the file of an object that is being fetched, in segments."""

from __future__ import annotations

import hashlib
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from penstock.models.remote.store_thread import StoppedError

SEGMENT = 16 << 20
"""Bytes of one request; less than that is fetched again after a kill."""

_PIECE = 1 << 18
"""Bytes that stay in a core's cache between being read and being hashed."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class SegmentFile:
    """A file that comes in segments, and the log of those that are whole; on any thread."""

    def __init__(self, file: int, log: IO[str]) -> None:
        self._file, self._log = file, log
        self._using, self._closed = threading.Lock(), False

    def write(self, data: Any, at: int) -> None:
        """Write bytes, on any thread; raises `StoppedError` once it is closed."""
        view = memoryview(data)
        with self._using:
            self._check_open()
            while view:
                written = os.pwrite(self._file, view, at)
                view, at = view[written:], at + written

    def finish(self, begin: int) -> None:
        """Record that the segment that begins there is whole."""
        with self._using:
            self._check_open()
            self._log.write(f"{begin}\n")
            self._log.flush()

    def _check_open(self) -> None:
        if self._closed:
            raise StoppedError

    def hash(self, digest: hashlib._Hash, begin: int, end: int) -> None:
        """Add bytes of the file to a digest."""
        # Into one buffer: new ones of this size cost as much as the digest.
        piece = memoryview(bytearray(min(_PIECE, end - begin)))
        for at in range(begin, end, _PIECE):
            size = os.preadv(self._file, [piece[: end - at]], at)
            digest.update(piece[:size])

    def close(self) -> None:
        """Close the file and the log."""
        with self._using:
            self._closed = True
            os.close(self._file)
            self._log.close()


class Part(SegmentFile):
    """A download in progress: a file, and the segments of it that are whole, by their begin.

    It goes on after the process was killed, and begins anew after the machine was: of that the
    file does not tell what has come to the disk.
    """

    def __init__(self, path: Path, size: int, lock: IO[bytes]) -> None:
        self.path, self._lock = path, lock
        self._done_path = path.with_suffix(".done")
        self._kind = f"{current_boot()}/{size}/{SEGMENT}"
        if not path.exists() or not self._done_path.exists() or not self.look():
            self.done = set[int]()
            self._done_path.write_text(f"{self._kind}\n")
        super().__init__(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), self._done_path.open("a"))
        os.ftruncate(self._file, size)

    def look(self) -> bool:
        """Read which segments are `done`, also by another process; whether the log is of these."""
        head, *lines = self._done_path.read_text().split() or [""]
        self.done = {int(line) for line in lines if line.isdecimal()}
        return head == self._kind

    def fds(self) -> tuple[int, int, int]:
        """The file, the log of whole segments and the lock, for another process."""
        return self._file, self._log.fileno(), self._lock.fileno()

    def seal(self) -> os.stat_result:
        """Make the whole file read-only; what it is from now on."""
        os.fchmod(self._file, 0o444)
        return os.fstat(self._file)

    def move(self, path: Path) -> None:
        """Move the file into place, if it was not removed."""
        with suppress(FileNotFoundError):
            os.replace(self.path, path)
        self._done_path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Throw away what was fetched."""
        self.path.unlink(missing_ok=True)
        self._done_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let others have it, whole or not."""
        super().close()
        if not self.path.exists():
            Path(self._lock.name).unlink()
        self._lock.close()


def current_boot() -> str:
    """What tells this boot of the machine from others."""
    return _BOOT.read_text().strip() if _BOOT.exists() else "unknown"
