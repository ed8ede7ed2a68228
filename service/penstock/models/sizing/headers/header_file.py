"""`HeaderFile`: a file whose header is read under limits, whatever the header says."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NoReturn

from penstock.core.errors import ModelLoadError

MOST_BYTES = 64 << 20
"""Bytes of a header. That of a model of 100,000 tensors has 12 MiB."""


class LongHeaderError(ModelLoadError):
    """The header has more than is read of one: the file may be sound, and only its size counts."""


class HeaderFile:
    """Reads forward; raises `ModelLoadError` at the end of the file, and of what a header may have.

    `most` are the bytes that may be read or skipped; what `go` passes over is no header.
    """

    def __init__(self, file: BinaryIO, path: Path, most: int = MOST_BYTES) -> None:
        self._file = file
        self._left = most
        self.path = path
        self.size = path.stat().st_size
        self.at = 0

    @classmethod
    @contextmanager
    def opened(cls, path: Path, most: int = MOST_BYTES) -> Iterator[HeaderFile]:
        """The file at `path`, which is closed in the end; also `OSError` is a `ModelLoadError`."""
        try:
            with path.open("rb") as file:
                yield cls(file, path, most)
        except OSError as error:
            raise ModelLoadError(f"'{path}' cannot be read: {error.strerror}") from error

    def read(self, count: int) -> bytes:
        """The next bytes."""
        self._pass(count)
        data = self._file.read(count)
        if len(data) != count:
            self.fail("is cut short")
        return data

    def skip(self, count: int) -> None:
        """Pass over bytes of the header."""
        self._pass(count)
        self.go(self.at)

    def go(self, place: int) -> None:
        """Read on from this place."""
        if place != self._file.tell():
            self._file.seek(place)
        self.at = place

    def number(self, layout: str) -> int:
        """The next number, of one letter of `struct`, little-endian."""
        (value,) = struct.unpack(f"<{layout}", self.read(struct.calcsize(layout)))
        return int(value)

    def fail(self, problem: str) -> NoReturn:
        """Raise for what is wrong with the file."""
        raise ModelLoadError(f"'{self.path}' {problem}")

    def give_up(self, problem: str) -> NoReturn:
        """Raise `LongHeaderError` for more than is read."""
        raise LongHeaderError(f"'{self.path}' {problem}")

    def _pass(self, count: int) -> None:
        if self.at + count > self.size:
            self.fail("is cut short, or damaged: its header speaks of bytes behind its end")
        self._left -= count
        if self._left < 0:
            self.give_up("has a header longer than any model's")
        self.at += count
