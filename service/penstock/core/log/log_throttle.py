"""Throttles of the log: what clients can provoke without limit does not fill it."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Mapping
from math import inf
from types import TracebackType

_SECONDS = 60.0

_MOST_KINDS = 256
"""Kinds of lines that are remembered."""


class LogThrottle:
    """Counts events, and decides when to log their number. Knows no clock."""

    def __init__(self) -> None:
        self.count = 0
        self._logged = -inf

    def add(self, now: float) -> bool:
        """Count one, at a time in seconds; whether to log the number now."""
        self.count += 1
        if now - self._logged < _SECONDS:
            return False
        self._logged = now
        return True

    def reset(self) -> None:
        """Count from 0 again; the minute goes on."""
        self.count = 0


class _Repeats:
    """Lines of one kind: since when they are counted, how many are logged, and how many are not."""

    __slots__ = ("left_out", "logged", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.logged = 0
        self.left_out = 0


class RepeatThrottle:
    """Lets a burst of lines of one kind through, then a line a minute. Knows no clock.

    Kinds are made by our code, never by texts of clients, and the longest known are forgotten
    where there are many.
    """

    def __init__(self, burst: int = 10) -> None:
        self._burst = burst
        self._kinds: dict[Hashable, _Repeats] = {}

    def admit(self, kind: Hashable, now: float) -> int | None:
        """Whether to log a line of this kind, at a time in seconds: `None` to leave it out.

        Otherwise how many have been left out since the last one.
        """
        repeats = self._kinds.get(kind)
        if repeats is None:
            if len(self._kinds) >= _MOST_KINDS:
                del self._kinds[next(iter(self._kinds))]
            repeats = self._kinds[kind] = _Repeats(now)
        if now - repeats.since >= _SECONDS:
            # A storm that goes on has one line a minute; after a quiet minute there is a new burst.
            repeats.logged = self._burst - 1 if repeats.left_out else 0
            repeats.since = now
        if repeats.logged >= self._burst:
            repeats.left_out += 1
            return None
        repeats.logged += 1
        left_out, repeats.left_out = repeats.left_out, 0
        return left_out


_REPEATS = RepeatThrottle()
"""That of this process."""


def repeat_note(*kind: Hashable) -> str | None:
    """What to add to a line of this kind, mostly nothing; `None` if it is to be left out."""
    left_out = _REPEATS.admit(kind, time.monotonic())
    if left_out is None:
        return None
    return f" (lines like this that are missing before it: {left_out})" if left_out else ""


def log_fault(
    logger: logging.Logger,
    error: BaseException,
    text: str,
    *args: object,
    extra: Mapping[str, str] | None = None,
) -> None:
    """Log an error that should not have happened, with its traceback, unless it repeats itself.

    Errors of one class from one place in the code are of one kind.
    """
    note = repeat_note(logger.name, text, type(error).__name__, *_place(error.__traceback__))
    if note is not None:
        logger.error(f"{text}%s", *args, note, exc_info=error, extra=extra, stacklevel=2)


def _place(traceback: TracebackType | None) -> tuple[str, int]:
    """File and line where an error was raised."""
    if traceback is None:
        return "", 0
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
