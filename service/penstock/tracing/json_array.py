"""`JsonArrayFile`: a file with one JSON array that grows, and is valid at every moment."""

from __future__ import annotations

import os
from contextlib import suppress
from errno import ENOSPC
from stat import S_ISREG

_FLAGS = os.O_RDWR | os.O_CLOEXEC


class JsonArrayFile:
    """Elements are appended over the closing bracket, each with a new one, in one write.

    The file appears with its first elements, for this user alone, in place of one that is there
    already. A kill in between leaves a whole array. All calls raise `OSError`; what could not be
    written is left out, and later elements are written.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        self._file = -1
        self._end = 0  # where the closing bracket is, once there is one

    @property
    def in_place(self) -> bool:
        """Whether the path leads to this file, which others may have moved or removed."""
        if self._file < 0:
            return False
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except FileNotFoundError:
            return False

    def append(self, elements: str) -> None:
        """Append elements that are joined by commas."""
        if self._file >= 0:
            self._write(f",{elements}]".encode())
        else:
            self._begin(f"[{elements}]".encode())

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _begin(self, data: bytes) -> None:
        """Make the file beside its place, and move it there once it is whole."""
        folder, name = os.path.split(self._path)
        beside = self._path if self._is_special() else os.path.join(folder, f".{name}.new")
        self._file = os.open(beside, _FLAGS) if beside == self._path else _new_file(beside)
        try:
            self._write(data)
            if beside != self._path:
                os.replace(beside, self._path)
        except OSError:
            self.close()
            self._end = 0
            if beside != self._path:
                with suppress(OSError):
                    os.unlink(beside)
            raise

    def _is_special(self) -> bool:
        """Whether something is there that must not be replaced, such as a device."""
        try:
            return not S_ISREG(os.stat(self._path).st_mode)
        except FileNotFoundError:
            return False

    def _write(self, data: bytes) -> None:
        written = 0
        try:
            written = os.pwrite(self._file, data, self._end)
        finally:
            if written < len(data):
                self._restore()
        if written < len(data):
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        self._end += len(data) - 1

    def _restore(self) -> None:
        """Take back a part of an element; the bracket's place is allocated already."""
        with suppress(OSError):  # the reason is that of the write
            os.ftruncate(self._file, self._end)
            if self._end:
                os.pwrite(self._file, b"]", self._end)


def _new_file(path: str) -> int:
    """A file of this user's alone, whatever is there already, such as one of a killed server."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
