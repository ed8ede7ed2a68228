"""`LogFile`: the handler of the log file, whose disk may be full."""

from __future__ import annotations

import errno
import logging
import os
import sys
import time
from logging import ERROR, WARNING, LogRecord

from penstock.core.log.log_throttle import LogThrottle
from penstock.telemetry.console import own_record, write_line


class LogFile(logging.Handler):
    """Appends lines to a file. Those that find no room are lost, and counted in it afterwards.

    One line a minute on standard error reports them, `lost` is their number. A new file is for this
    user alone. Raises `OSError` if it cannot be opened.
    """

    lost = 0

    def __init__(self, path: str) -> None:
        self._file = _opened(path)
        super().__init__()  # at the end of the process `logging` closes what has come so far
        self._path = path
        self._missing = LogThrottle()
        self._reason = ""
        self._cut = False  # whether the last line in the file lacks its end

    def emit(self, record: LogRecord) -> None:
        """Write a line; errors of the disk are not raised."""
        try:
            line = self.format(record)
        except Exception:  # arguments that do not fit the message
            self.handleError(record)
            return
        try:
            self._report_lost()
            self._append(line)
        except OSError as error:
            self._lose(error)

    def close(self) -> None:
        with self.lock:  # type: ignore[union-attr]
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
        super().close()

    def _append(self, line: str) -> None:
        rest = f"{line}\n".encode("utf-8", "backslashreplace")
        if self._cut:
            rest = b"\n" + rest
        while rest:
            written = os.write(self._file, rest)
            self._cut = written < len(rest)
            rest = rest[written:]

    def _lose(self, error: OSError) -> None:
        self._reason = error.strerror or str(error)
        self.lost += 1
        if self._missing.add(time.monotonic()):
            lost = self._missing.count
            text = f"log file '{self._path}' is not writable: {self._reason}; lost lines: {lost}"
            write_line(self.format(own_record(ERROR, text)), sys.stderr)

    def _report_lost(self) -> None:
        if lost := self._missing.count:
            text = f"lines missing here: {lost}, since the file was not writable: {self._reason}"
            self._append(self.format(own_record(WARNING, text)))
            self._missing.reset()


KEPT = 4
"""Older files beside the one that is written: `PATH.1` is the latest of them."""

_AGAIN_SECONDS = 60.0
"""Until another try to begin a new file, where one has failed."""


class RotatedFile(LogFile):
    """A log file that is renamed when it has reached a size, and of which the last ones are kept.

    Where it cannot be renamed, it goes on to grow.
    """

    def __init__(self, path: str, max_bytes: int) -> None:
        super().__init__(path)
        self._max_bytes = max_bytes
        self._again = 0.0

    def _append(self, line: str) -> None:
        if self._max_bytes and os.fstat(self._file).st_size >= self._max_bytes:
            self._rotate()
        super()._append(line)

    def _rotate(self) -> None:
        now = time.monotonic()
        if now < self._again:
            return
        try:
            for number in range(KEPT - 1, 0, -1):
                if os.path.exists(f"{self._path}.{number}"):
                    os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
            os.replace(self._path, f"{self._path}.1")
            new = _opened(self._path)
        except OSError:
            self._again = now + _AGAIN_SECONDS
            return
        os.close(self._file)
        self._file, self._cut = new, False


def _opened(path: str) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        file = os.open(path, flags | os.O_NONBLOCK, 0o600)  # else it waits for a reader of a pipe
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(error.errno, "it is a pipe that nobody reads", path) from error
        raise
    os.set_blocking(file, True)
    return file
