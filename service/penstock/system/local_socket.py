"""A listening Unix socket, which takes over the stale file of a server that was killed."""

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
"""Seconds between tries to lock; it is held for microseconds."""


class LocalSocket:
    """A listening Unix socket and its file.

    Of servers that start at the same time one takes over a stale file; the others raise `OSError`,
    as if another server were listening.
    """

    def __init__(self, path: str, backlog: int) -> None:
        self._path = path
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            with _DirectoryLock(path):
                if _is_abandoned(path):
                    os.unlink(path)
                self.socket.bind(path)
                self.socket.listen(
                    backlog
                )  # before the lock is released: else the file would look stale
                self._file = _identity(path)
        except OSError:
            self.socket.close()
            raise

    def remove(self) -> None:
        """Remove the file, unless it is gone or belongs to another server by now.

        A file that cannot be removed stays: the next server takes it over.
        """
        with _DirectoryLock(self._path), suppress(OSError):
            if _identity(self._path) == self._file:
                os.unlink(self._path)


class _DirectoryLock:
    """An exclusive lock on a directory, for checking and replacing a socket file in it.

    It leaves no file. Where it cannot be taken (on some network drives, or if another program
    holds it), it is skipped: servers that start one after the other do not need it.
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
    """Whether the file is a socket without a listener."""
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        try:
            client.connect(path)
        except ConnectionRefusedError:  # files of other kinds refuse too
            return stat.S_ISSOCK(os.stat(path).st_mode)
        except OSError:  # there is no file; or the backlog of its listener is full
            return False
        return False
