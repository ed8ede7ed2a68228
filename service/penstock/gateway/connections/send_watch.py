"""The watch on a client that does not read what is written to it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from penstock.http1.limits import SendClock
from penstock.system.send_queue import unacknowledged

_LOOKS = 4
"""Looks in the time that a client may take nothing."""

_FAREWELL_SECONDS = 1.0
"""Seconds for a client that has all bytes to close its side: over TLS it is asked to."""


class SendWatch:
    """Aborts a transport whose client takes none of its unsent bytes for so many seconds.

    It looks at them as long as there are any, and at one that closes until it is closed.
    """

    __slots__ = ("_clock", "_loop", "_seconds", "_timer", "_transport")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, seconds: float
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._seconds = seconds
        self._clock: SendClock | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look from now on; no effect while it does."""
        if self._timer is None:
            self._clock = SendClock(self._seconds, self._loop.time(), self._unsent())
            self._wait(self._seconds / _LOOKS)

    def close(self) -> None:
        """Close the transport once all is sent, and look until it is closed."""
        self.stop()
        self._transport.close()
        self.start()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, seconds: float) -> None:
        if self._transport.is_closing():
            seconds = min(seconds, _FAREWELL_SECONDS)
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        buffered, queued = self._unsent()
        closing = self._transport.is_closing()
        if not (buffered or closing):
            return
        clock = self._clock
        assert clock is not None
        goodbye = closing and not (buffered or queued)
        if goodbye or clock.stalled(self._loop.time(), (buffered, queued)):
            self._transport.abort()
        else:
            self._wait(self._seconds / _LOOKS)

    def _unsent(self) -> tuple[int, int]:
        """Bytes that the server and the kernel hold; each changes as the client takes some."""
        queued = 0
        with suppress(OSError, ValueError):  # the socket is closed
            queued = unacknowledged(self._transport.get_extra_info("socket").fileno())
        return self._transport.get_write_buffer_size(), queued
