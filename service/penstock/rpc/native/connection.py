"""The asyncio protocol of one connection: frames in at each read, one write per loop turn."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from math import inf
from typing import cast

from penstock.access.certificate_names import certificate_names
from penstock.http2 import frames
from penstock.http2.connection import Connection
from penstock.http2.frame_parser import DIRECT
from penstock.http2.frames import HEADER_SIZE
from penstock.http2.keepalive import ConnectionLifetime, LifetimeAction
from penstock.rpc.native.call import RpcCall
from penstock.rpc.native.routes import CallRoute, HeaderFields
from penstock.rpc.native.server_state import ServerState
from penstock.system.body_room import Incomplete

_KEEPALIVE = b"penstock"
_CLOSING = 5.0  # seconds for a client to read the last frames
_CLOSING_IDLE = 0.2  # the same where another connection waits for the descriptor


class ConnectionProtocol(asyncio.BufferedProtocol):
    """Reads into a buffer that all connections share, or straight into that of a large message.

    Data that outlives a read is copied before it returns. Responses that are made during a read
    are written at its end, others at the end of the loop's turn.
    """

    def __init__(self, server: ServerState, read: Callable[[HeaderFields], CallRoute]) -> None:
        self.server = server
        self.loop = server.loop
        self.connection: Connection[CallRoute] = Connection(
            server.limits, read, self._open_stream, server.new_ping_strikes()
        )
        self.send_buffer = self.connection.send_buffer
        self.send_buffer.splits = not server.encrypted  # each part would become a TLS record
        self.peer = ""
        self.certificate: Sequence[str] = ()
        self.keepalives = 0
        self.begun: list[RpcCall] = []
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._direct = False
        self._passing = self._armed = False
        self._interrupted = self._starved = self._resting = False
        self._lifetime = ConnectionLifetime(server.ages, self.loop.time())
        self._timer: asyncio.TimerHandle | None = None

    def _open_stream(self, stream_id: int, route: CallRoute) -> RpcCall:
        return route.call(self, stream_id, route.head, route.method)

    # -- asyncio.BufferedProtocol -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        self.peer = peer_name(transport)
        self.certificate = certificate_names(transport.get_extra_info("peercert"))
        if not self.server.accept(self, transport):
            transport.abort()
            return
        self._flush()
        self._set_timer()

    def get_buffer(self, _: int) -> memoryview:
        parser = self.connection.parser
        memory = parser.memory() if parser.left >= DIRECT else None
        self._direct = memory is not None
        if memory is not None:
            return memory
        rest = self._rest
        if not rest:
            return self.server.scratch
        self.server.scratch[: len(rest)] = rest
        return self.server.scratch[len(rest) :]

    def buffer_updated(self, size: int) -> None:
        connection = self.connection
        connection.now = self.loop.time()
        if self._direct:
            self._passing = True
            connection.filled(size)
            self._read_done(0)
        else:
            self._receive(self.server.scratch[: len(self._rest) + size])
        if size >= DIRECT:
            self._spend(size)

    def _receive(self, data: memoryview) -> None:
        """Process what has come: of many frames some, and the others in the loop's next turn."""
        self._passing = True
        done = self.connection.receive(data)
        self._rest = bytes(data[done:]) if done < len(data) else b""
        if self.connection.parser.interrupted:
            self._interrupted = True
            assert self._transport is not None
            self._transport.pause_reading()
            self.loop.call_soon(self._receive_rest)
        self._read_done(done)

    def _receive_rest(self) -> None:
        self._interrupted = False
        if self._transport is None or self._transport.is_closing():
            return
        self.connection.now = self.loop.time()
        self._receive(memoryview(self._rest))
        self._resume_reading()

    def _spend(self, size: int) -> None:
        """Count bytes that were read: a socket that is always full is read again at once."""
        turn = self.server.turn
        turn.spend(size)
        if turn.over and not self._resting and self._transport is not None:
            self._resting = True
            self._transport.pause_reading()
            self.loop.call_soon(self._rested)

    def _rested(self) -> None:
        self._resting = False
        self._resume_reading()

    def _read_done(self, done: int) -> None:
        """Answer what was read, of which `done` bytes were whole frames."""
        connection, now = self.connection, self.connection.now
        self._passing = False
        if self.begun:
            begun, self.begun = self.begun, []
            for call in begun:
                call.start_deadline()
        self._flush()
        parser, streams = connection.parser, len(connection.streams)
        incomplete = not self._interrupted and len(self._rest) > HEADER_SIZE
        in_block = parser.block_stream != 0 or incomplete
        anew = done > 0 and not parser.block_stream
        self._lifetime.bytes_received(
            now, opened=parser.opened, in_block=in_block, streams=streams, anew=anew
        )
        if in_block:
            self._check_by(now + self.server.ages.opening)

    @property
    def negotiated_http2(self) -> bool:
        """Whether client and server have agreed on HTTP/2 in their TLS handshake."""
        assert self._transport is not None
        found = self._transport.get_extra_info("ssl_object")
        return found is not None and found.selected_alpn_protocol() == "h2"

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self.server.bodies.stop_waiting(self._read_on)
        self.connection.lost()
        if self._timer is not None:
            self._timer.cancel()
        self.server.forget(self)

    def pause_writing(self) -> None:
        self.send_buffer.paused = True

    def resume_writing(self) -> None:
        self.send_buffer.paused = False
        self.send_buffer.pump()
        self.wake()

    # -- for calls and the server -------------------------------------------------------------

    @property
    def calls(self) -> int:
        """The calls in flight."""
        return len(self.connection.streams)

    @property
    def idle_since(self) -> float | None:
        """Loop time of the last read; `None` while calls are in flight or it is being closed."""
        transport = self._transport
        if self.connection.streams or self.send_buffer:
            return None
        return None if transport is None or transport.is_closing() else self._lifetime.heard

    def close_idle(self) -> None:
        """Tell the client that no call was lost (GOAWAY, RFC 9113 section 6.8), and close."""
        self.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(_CLOSING_IDLE, self.abort)

    def wake(self) -> None:
        """Flush the send buffer at the end of this turn of the event loop."""
        if not (self._armed or self._passing):
            self._armed = True
            self.loop.call_soon(self._armed_flush)

    def eldest_incomplete(self) -> Incomplete | None:
        """Its call whose request is incomplete for the longest time."""
        calls = [
            call
            for call in self.connection.streams.values()
            if isinstance(call, RpcCall) and call.fills_memory
        ]
        eldest = min(calls, key=lambda call: call.opened, default=None)
        return None if eldest is None else Incomplete(eldest.opened, eldest.refuse)

    def stop_reading(self) -> None:
        """Read nothing until there is memory for bodies."""
        if self._transport is not None and not self._transport.is_closing():
            self._starved = True
            self._transport.pause_reading()
            self.server.bodies.wait(self._read_on)

    def _read_on(self) -> None:
        self._starved = False
        self._resume_reading()

    def _resume_reading(self) -> None:
        """Read on, unless something else is waited for."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not (self._starved or self._interrupted or self._resting):
            transport.resume_reading()

    def drain(self) -> None:
        """Ask the client to leave when its calls are done."""
        self._lifetime.drain_started(self.loop.time())
        self.connection.drain()
        self.wake()
        self._set_timer()

    def close(self) -> None:
        """Cancel the calls in flight, and close after the last frames."""
        self.connection.finish_draining()
        self.connection.lost()
        self._flush()

    def abort(self) -> None:
        """Close the socket at once."""
        if self._transport is not None:
            self._transport.abort()

    # -- writing, timers ----------------------------------------------------------------------

    def _armed_flush(self) -> None:
        self._armed = False
        self._flush()

    def _flush(self) -> None:
        send_buffer, transport = self.send_buffer, self._transport
        assert transport is not None
        if transport.is_closing():
            return
        while send_buffer and not send_buffer.paused:
            parts = send_buffer.take_ready()
            if len(parts) == 1:
                transport.write(parts[0])
            else:
                transport.writelines(parts)
            send_buffer.pump()
        if self.connection.closing:
            if send_buffer:
                transport.write(b"".join(send_buffer.take_ready()))
            transport.close()
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_later(_CLOSING, transport.abort)

    def _check_by(self, time: float) -> None:
        """Make sure that the lifetime is checked by `time`."""
        if self._timer is None or self._timer.when() > time:
            self._set_timer()

    def _set_timer(self) -> None:
        """Schedule the next check of the lifetime."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._timer is not None:
            self._timer.cancel()
        due = self._lifetime.next_check(self.loop.time())
        self._timer = None if due == inf else self.loop.call_at(due, self._check_lifetime)

    def _check_lifetime(self) -> None:
        connection, now = self.connection, self.loop.time()
        self._lifetime.streams_counted(now, len(connection.streams))
        while (step := self._lifetime.next_action(now)) is not LifetimeAction.NOTHING:
            if step is LifetimeAction.CLOSE:
                self.close()
                return
            if step is LifetimeAction.PING:
                self.keepalives += 1
                self.send_buffer.queue(frames.ping(_KEEPALIVE))
            elif step is LifetimeAction.DRAIN:
                connection.drain()
            else:
                connection.finish_draining()
        self._flush()
        self._set_timer()


def peer_name(transport: asyncio.BaseTransport) -> str:
    """`ipv4:HOST:PORT`, `ipv6:[HOST]:PORT` or `unix:PATH`."""
    found = transport.get_extra_info("socket")
    address = transport.get_extra_info("peername")
    if found is not None and found.family == socket.AF_UNIX:
        return f"unix:{address or ''}"
    if not address:
        return ""
    host, port = address[:2]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
