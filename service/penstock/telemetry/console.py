"""Standard output and error, written so that a reader who closed them does not stop the server."""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import suppress
from logging import ERROR, LogRecord
from typing import Literal, NoReturn, TextIO

from penstock.core.log.log_throttle import LogThrottle


def open_missing() -> None:
    """Open the standard file descriptors that this process was started without, on `/dev/null`.

    Otherwise a socket or file would get such a number, and libraries and models would write to it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", closefd=False))


def join_streams(target: Literal["stdout", "stderr"]) -> None:
    """Send everything to one of the standard streams, of this process and those that it starts."""
    ends = (1, 2) if target == "stdout" else (2, 1)
    sys.stdout.flush()
    os.dup2(*ends)


def end_process(status: int) -> NoReturn:
    """Exit without joining threads."""
    logging.shutdown()
    for output in (sys.stdout, sys.stderr):
        with suppress(OSError):  # the reader may have closed its end
            output.flush()
    os._exit(status)


def write_line(line: str, stream: TextIO) -> None:
    """Write and flush a line; failures are ignored."""
    try:
        print(line, file=stream, flush=True)
    except BrokenPipeError:
        discard(stream)
    except OSError:  # such as a full disk, which may have room again
        return


def discard(stream: TextIO) -> None:
    """Discard the buffered output of a stream, and whatever is written to it later."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)


def own_record(level: int, text: str) -> LogRecord:
    """A record of the log about itself, which no logger has made."""
    return LogRecord("penstock.telemetry", level, __file__, 1, "%s", (text,), None)


class ConsoleHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes lines to a standard stream. Those without room are lost, and told once a minute."""

    lost = 0

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._missing = LogThrottle()

    def handleError(self, record: LogRecord) -> None:  # noqa: N802
        error = sys.exc_info()[1]
        if isinstance(error, BrokenPipeError):
            discard(self.stream)
        elif not isinstance(error, OSError):
            super().handleError(record)
        else:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        self.lost += 1
        if self._missing.add(time.monotonic()):
            text = f"{self.stream.name} is not writable: {error.strerror}"
            write_line(self.format(own_record(ERROR, text)), sys.stderr)
