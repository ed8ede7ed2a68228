"""`LineWriter`: lines that a thread writes, so that nobody waits for a disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from enum import Enum
from logging import WARNING, LogRecord
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

from penstock.telemetry.console import ConsoleHandler, own_record
from penstock.telemetry.log_file import LogFile

MOST_WAITING = 1 << 14
"""Lines that may wait for the disk; further ones are lost, and counted in the log afterwards."""

_PAUSE = 0.02
"""Seconds between two looks of the writing thread: lines of a burst are written together."""

_CLOSE_SECONDS = 5.0

logger = logging.getLogger(__name__)

Line = TypeVar("Line")
Output = LogFile | ConsoleHandler


class _Order(Enum):
    """What the writing thread is to do beside writing lines."""

    REOPEN = "reopen"
    STOP = "stop"


class LineWriter(Generic[Line]):
    """Writes lines by the handler that `open_output` makes, which makes text of their records.

    `add` never waits. Raises `OSError` if the output cannot be opened.
    """

    def __init__(
        self, name: str, open_output: Callable[[], Output], record: Callable[[Line], LogRecord]
    ) -> None:
        self._name = name
        self._open = open_output
        self._record = record
        self._handler = open_output()  # from here on the thread's, as is `_told`
        self._lines: SimpleQueue[tuple[Line] | _Order] = SimpleQueue()
        self._lost = self._told = self._lost_before = 0
        self._thread = Thread(target=self._write, name=name, daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Lines that were lost so far: too many waited, or the disk did not take them."""
        return self._lost + self._lost_before + self._handler.lost

    @property
    def waiting(self) -> int:
        """Lines that wait for the disk."""
        return self._lines.qsize()

    def add(self, line: Line) -> None:
        """Have a line written soon; it is lost where too many wait."""
        if self._lines.qsize() < MOST_WAITING:
            self._lines.put((line,))
        else:
            self._lost += 1

    def reopen(self) -> None:
        """Open the file anew, as after it was renamed; on failure the old one stays in use."""
        self._lines.put(_Order.REOPEN)

    def close(self) -> None:
        """Write what waits, and stop; returns after a few seconds at most."""
        self._lines.put(_Order.STOP)
        self._thread.join(_CLOSE_SECONDS)

    def _write(self) -> None:
        while (line := self._lines.get()) is not _Order.STOP:
            if isinstance(line, tuple):
                self._handler.handle(self._record(line[0]))
            else:
                self._reopen()
            if (lost := self._lost) != self._told:
                text = f"lines missing here: {lost - self._told}"
                self._told = lost
                self._handler.handle(own_record(WARNING, text))
            if self._lines.empty():
                time.sleep(_PAUSE)
        self._handler.close()

    def _reopen(self) -> None:
        try:
            handler = self._open()
        except OSError as error:
            logger.error("the %s cannot be opened anew: %s", self._name, error)
            return
        self._lost_before += self._handler.lost
        self._handler.close()
        self._handler = handler
