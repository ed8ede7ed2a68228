"""Listening on a Unix socket, whose file a server that was killed has left behind."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

_TRIES = 100
_PAUSE = 0.01
"""Seconds between tries to lock; others need the lock for microseconds."""


class LocalSocket:
    """A listening socket and the file by which it is called.

    Of servers that start at the same time one takes the file over; the others raise `OSError`, as
    where a server lives.
    """

    def __init__(self, path: str, backlog: int) -> None:
        self._path = path
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            with _DirectoryLock(path):
                if _is_abandoned(path):
                    os.unlink(path)
                self.socket.bind(path)
                self.socket.listen(backlog)  # or others would take it for abandoned
                self._file = _identity(path)
        except OSError:
            self.socket.close()
            raise

    def remove(self) -> None:
        """Remove the file, unless somebody has, or another server has put its own there.

        One that cannot be removed stays: the next server takes it over.
        """
        with _DirectoryLock(self._path), suppress(OSError):
            if _identity(self._path) == self._file:
                os.unlink(self._path)


class _DirectoryLock:
    """Held by one server at a time, as long as it looks at files in a directory and changes them.

    It leaves no file. Where it cannot be had (on some network drives, or since a stranger keeps
    it), servers that start one after the other need none.
    """

    def __init__(self, path: str) -> None:
        self._directory = os.path.dirname(path) or "."
        self._descriptor = -1

    def __enter__(self) -> Self:
        with suppress(OSError):
            self._descriptor = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
            for _ in range(_TRIES):
                if self._locked():
                    break
                time.sleep(_PAUSE)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def _locked(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _is_abandoned(path: str) -> bool:
    """Whether there is a socket on which nobody listens any more."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.setblocking(False)
        try:
            caller.connect(path)
        except ConnectionRefusedError:  # by files of other kinds too
            return stat.S_ISSOCK(os.stat(path).st_mode)
        except OSError:  # there is none; or too many are calling
            return False
        return False
