"""Exit statuses of `penstock perf`, and the error that ends it with one of them."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """Exit statuses of the command; the highest that applies, but for an interruption."""

    FINE = 0
    USAGE = 1  # options or files are wrong, nothing was sent; or results could not be written
    UNREACHABLE = 2  # nothing could be measured: no server, or no such model
    FAILURES = 3  # requests failed, or the server went away; the results say which
    GATE = 4  # a limit of the gate was not held
    SHORT = 5  # the rate that was asked for was not reached, or nothing was answered in the time
    INTERRUPTED = 130  # Ctrl-C or SIGTERM; what was measured until then is reported
    PIPE_CLOSED = 141  # the reader of the output has closed it


class PerfError(Exception):
    """The end of the command before there are results, with a message for its user."""

    def __init__(self, message: str, status: Status = Status.USAGE) -> None:
        super().__init__(message)
        self.status = status
