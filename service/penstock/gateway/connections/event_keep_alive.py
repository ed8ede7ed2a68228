"""Signs of life on streams of server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.gateway.connections.http_call import HttpCall

COMMENT = b": keep-alive\n\n"
"""Readers of server-sent events skip it."""


class EventKeepAlive:
    """Writes a comment when nothing was written for so many seconds, between events only."""

    __slots__ = ("_between", "_call", "_loop", "_seconds", "_timer", "_written_at")

    def __init__(self, call: HttpCall, seconds: float) -> None:
        self._call = call
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._between = True
        self._written_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, now that the head of the reply is written; nothing where `seconds` is 0."""
        self.stop()
        self._written_at = self._loop.time()
        if self._seconds:
            self._timer = self._loop.call_later(self._seconds, self._keep)

    def start_before(self, begin: Callable[[], None]) -> None:
        """Have `begin` write the head if nothing comes for so long, with a comment behind it.

        What fails then is told by an event instead of the status.
        """
        if self._seconds:
            self._timer = self._loop.call_later(self._seconds, self._begin, begin)

    def _begin(self, begin: Callable[[], None]) -> None:
        begin()
        if self._call.is_writable:
            self._call.write_nowait(COMMENT)
            self.written()

    def written(self, *, between: bool = True) -> None:
        """Part of the stream was written, and ends `between` two events."""
        self._between = between
        self._written_at = self._loop.time()

    def stop(self) -> None:
        """End; the stream does."""
        if self._timer is not None:
            self._timer.cancel()

    def _keep(self) -> None:
        left = self._seconds - (self._loop.time() - self._written_at)
        if left <= 0:
            if self._between and self._call.is_writable:
                self._call.write_nowait(COMMENT)
                self.written()
            left = self._seconds
        self._timer = self._loop.call_later(left, self._keep)
