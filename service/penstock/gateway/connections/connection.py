"""The asyncio protocol of one HTTP connection: requests in at each read, one write per turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from math import inf
from typing import Any, cast

from penstock.access.certificate_names import certificate_names
from penstock.core.access import Access, AccessSink, AuditSink
from penstock.core.body_quota import BodyQuota
from penstock.gateway.connections.http_call import HttpCall, written
from penstock.gateway.connections.open_connections import OpenConnections
from penstock.http1.connection import Connection
from penstock.http1.limits import FAREWELL, FarewellClock, SendClock
from penstock.http1.requests import Exchange, RequestHead
from penstock.shared_memory.message_memory import WORTH
from penstock.system.body_room import Incomplete
from penstock.system.send_queue import unacknowledged

Reserve = Callable[[RequestHead], memoryview | None]
"""Allocates memory for the whole body of a request, if it should not lie just anywhere."""

_SMALL_BODY = 64 << 10
"""Bytes of a body that is not counted."""

_UNSENT = 1
"""Bytes beyond what the kernel takes from which on an answer waits.

The kernel holds more than a reader takes in a turn of the loop. Not 0: TLS would always wait.
"""


class ConnectionProtocol(asyncio.BufferedProtocol):
    """Reads into a buffer that all connections share, or straight into the body of a request.

    Responses that are made during a read are written at its end, others at the end of the loop's
    turn.
    """

    def __init__(
        self,
        server: OpenConnections,
        start: Callable[[HttpCall], None],
        reserve: Reserve | None = None,
    ) -> None:
        self.loop = server.loop
        self.connection = Connection(
            server.rules.limits, self._open, self._refused, self.loop.time(), server.heads
        )
        self.client: tuple[str, int] | None = None
        self.certificate: Sequence[str] = ()
        self.access: AccessSink | None = server.rules.access
        self.audit: AuditSink | None = server.rules.audit
        self.tasks: set[asyncio.Task[Any]] = server.tasks
        self.received: list[HttpCall] = []
        self._server = server
        self._start = start
        self._reserve = reserve
        self._transport: asyncio.Transport | None = None
        self._direct: memoryview | None = None
        self._reading = True
        self._resting = False  # until others have had their turn
        self._passing = self._armed = False
        self._timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None  # parses what waits
        self._sending: SendWatch | None = None
        self._farewell: FarewellClock | None = None  # of a client that is refused
        self._ending = False

    def _open(self, head: RequestHead) -> Exchange:
        call = HttpCall(self, head, self._start)
        size = head.content_length
        if size is None or size > _SMALL_BODY:
            call.body.quota = self._server.rules.bodies.quota
        if self._reserve is not None and size is not None and size >= WORTH:
            memory = self._reserve(head)
            if memory is not None:
                call.body.reserve(memory)
        return call

    def _refused(self, status: HTTPStatus) -> None:
        if self.access is not None:
            peer = written(self.client)
            access = Access(time.time(), peer, "HTTP", "-", "", str(int(status)), 0, 0, 0.0)
            self.access.add(access)

    # -- asyncio.BufferedProtocol -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername")
        if isinstance(address, tuple):
            self.client = address[0], address[1]
        self.certificate = certificate_names(transport.get_extra_info("peercert"))
        self.connection.send_buffer.splits = transport.get_extra_info("ssl_object") is None
        transport.set_write_buffer_limits(high=_UNSENT)
        if not self._server.accept(self, transport):
            transport.abort()
            return
        self._settle()

    def get_buffer(self, _: int) -> memoryview:
        self._direct = self.connection.direct_memory()
        return self._server.scratch if self._direct is None else self._direct

    def buffer_updated(self, size: int) -> None:
        if self._farewell is not None:
            self._farewell.bytes_received(size)
            return
        now = self.loop.time()
        self._passing = True
        direct, self._direct = self._direct, None  # an idle connection holds no body's memory
        if direct is None:
            self.connection.receive(bytes(self._server.scratch[:size]), now)
        else:
            self.connection.filled(size, now)
            self._rest_after(size)
        self._pass()

    def eof_received(self) -> bool:
        transport = self._transport
        if transport is None or self._farewell is not None:
            return False
        if not transport.can_write_eof():  # TLS: it has no connections that one side has ended
            return False
        if not self.connection.end_received():
            return False
        self._settle()
        return True

    def connection_lost(self, _: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._sending is not None:
            self._sending.stop()
        self._server.forget(self)
        self._server.rules.bodies.stop_waiting(self._settle)
        self._direct = self._sending = self._transport = None  # which holds the buffers of TLS
        self.connection.lost()

    def pause_writing(self) -> None:
        self.connection.send_buffer.paused = True
        if self._transport is not None:
            self._sending_watch(self._transport).start()

    def resume_writing(self) -> None:
        self.connection.send_buffer.paused = False
        self._notify_writable()
        self.wake()

    # -- for calls and the server -------------------------------------------------------------

    @property
    def bodies(self) -> BodyQuota:
        """The quota of the bodies in flight on all connections."""
        return self._server.rules.bodies.quota

    def wake(self) -> None:
        """Write at the end of this turn of the event loop."""
        if not (self._armed or self._passing):
            self._armed = True
            self.loop.call_soon(self._armed_settle)

    def incomplete(self) -> Incomplete | None:
        """The request whose body is not complete, if there is one."""
        call = self.connection.receiving
        return Incomplete(call.opened, self._refuse_body) if isinstance(call, HttpCall) else None

    def _refuse_body(self) -> None:
        self.connection.refuse_body()
        self._settle()

    @property
    def idle_since(self) -> float | None:
        """Loop time since which it waits for a request; `None` while it has one, or is closed."""
        transport = self._transport
        if self._ending or transport is None or transport.is_closing():
            return None
        return self.connection.idle_since

    def close_idle(self) -> None:
        """Close a connection that waits for a request."""
        assert self._transport is not None
        self._sending_watch(self._transport).close()

    def drain(self) -> None:
        """Close when the response that is being sent is complete; now if there is none."""
        self.connection.drain()
        self._settle()

    def abort(self) -> None:
        """Close the socket at once."""
        assert self._transport is not None
        self._transport.abort()

    # -- after each change --------------------------------------------------------------------

    def _pass(self) -> None:
        """End a read: take up what has waited for it, and write."""
        if self.received:
            received, self.received = self.received, []
            for call in received:
                call.take_up()
        self._passing = False
        self._settle()

    def _armed_settle(self) -> None:
        self._armed = False
        self._settle()

    def _settle(self) -> None:
        """Write what is ready; then read, parse, wait or close as the connection wants."""
        connection, transport = self.connection, self._transport
        if self._ending or transport is None or transport.is_closing():
            return
        if connection.send_buffer and not (connection.send_buffer.paused or connection.aborted):
            self._write(transport)
        wants, parses, due = connection.settle(self.loop.time())
        if connection.closing:
            self._close(transport)
        else:
            self._go_on(transport, wants, parses, due)

    def _write(self, transport: asyncio.Transport) -> None:
        parts = self.connection.send_buffer.take_ready()
        if len(parts) == 1:
            transport.write(parts[0])
        else:
            transport.writelines(parts)
        if self.connection.exchanges:
            self._notify_writable()

    def _go_on(self, transport: asyncio.Transport, wants: bool, parses: bool, due: float) -> None:
        """Read or not, parse what waits, and arm the timer."""
        if wants and (self._resting or (self.connection.receiving and self._lacks_memory())):
            wants = False
        if wants is not self._reading:
            self._reading = not self._reading
            (transport.resume_reading if self._reading else transport.pause_reading)()
        if parses and self._turn is None:
            self._turn = self.loop.call_soon(self._parse)
        if due != inf and (self._timer is None or self._timer.when() > due):
            self._set_timer(due)

    def _rest_after(self, size: int) -> None:
        """Read no more in this turn of the loop where large bodies have come, however fast."""
        turn = self._server.turn
        turn.spend(size)
        if turn.over and not self._resting:
            self._resting = True
            self.loop.call_soon(self._rested)

    def _rested(self) -> None:
        self._resting = False
        self._settle()

    def _lacks_memory(self) -> bool:
        """Whether to read on later, when there is memory for bodies."""
        bodies = self._server.rules.bodies
        if not bodies.quota.exhausted:
            return False
        bodies.wait(self._settle)
        return True

    def _notify_writable(self) -> None:
        exchanges = self.connection.exchanges
        if exchanges and self.connection.send_buffer.writable:
            exchanges[0].on_writable()

    def _parse(self) -> None:
        self._turn = None
        if self._transport is None or self._transport.is_closing():
            return
        self._passing = True
        self.connection.parse(self.loop.time())
        self._pass()

    # -- the end, and time --------------------------------------------------------------------

    def _close(self, transport: asyncio.Transport) -> None:
        connection = self.connection
        self._ending = True
        if self._timer is not None:
            self._timer.cancel()
        if connection.aborted:
            transport.abort()
            return
        if connection.send_buffer:  # behind what the client has yet to read
            transport.writelines(connection.send_buffer.take_ready())
        if not connection.lingering:
            self._sending_watch(transport).close()
            return
        if transport.can_write_eof():
            # asyncio's transport raises for a client that has reset the connection, which the
            # next event tells anyway.
            with suppress(OSError):
                transport.write_eof()
        if not self._reading:
            self._reading = True
            transport.resume_reading()
        self._sending_watch(transport).start()
        self._farewell = FarewellClock()
        self._linger()

    def _linger(self) -> None:
        self._timer = self.loop.call_later(FAREWELL, self._lingered)

    def _lingered(self) -> None:
        """End, unless the client still reads earlier answers."""
        transport, farewell = self._transport, self._farewell
        if transport is None or farewell is None:
            return
        if transport.get_write_buffer_size() or not farewell.expired():
            self._linger()
        else:
            transport.abort()

    def _sending_watch(self, transport: asyncio.Transport) -> SendWatch:
        if self._sending is None:
            seconds = self._server.rules.limits.sending
            self._sending = SendWatch(self.loop, transport, seconds)
        return self._sending

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(due, self._check_time)

    def _check_time(self) -> None:
        self._timer = None
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.connection.check_time(self.loop.time(), reading=self._reading):
            self._sending_watch(transport).close()
        else:
            self._settle()


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
