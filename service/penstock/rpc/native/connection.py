"""The asyncio protocol of one connection: one pass per read, one write per turn of the loop."""

from __future__ import annotations

import asyncio
import socket
from math import inf
from typing import TYPE_CHECKING, cast

from penstock.http2 import frames
from penstock.http2.connection import Connection
from penstock.http2.frames import HEADER_SIZE
from penstock.http2.keepalive import Lifetime, Step
from penstock.rpc.native.route import Route
from penstock.rpc.native.server_state import Endpoint

if TYPE_CHECKING:
    from penstock.rpc.native.calls import UnaryCall
    from penstock.rpc.native.rpc_call import Call


_KEEPALIVE = b"penstock"
_CLOSING = 5.0  # seconds for a peer to read the last of what we send


class Shell(asyncio.BufferedProtocol):
    """Reads into memory that all connections share, or straight into that of a large message.

    Whatever outlives a pass has been copied by then. Answers that are made within a pass are
    written at its end, others at the end of the loop's turn.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.loop = endpoint.loop
        self.connection: Connection[Route] = Connection(
            endpoint.limits, endpoint.routes.read, self._open_stream, endpoint.strikes()
        )
        self.outbox = self.connection.outbox
        self.outbox.splits = not endpoint.encrypted  # each part would become a record of TLS
        self.peer = ""
        self.keepalives = 0
        self.begun: list[UnaryCall] = []  # in this pass, with a deadline
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._direct = False
        self._passing = False
        self._armed = False
        self._lifetime = Lifetime(endpoint.ages, self.loop.time())
        self._timer: asyncio.TimerHandle | None = None

    def _open_stream(self, stream_id: int, route: Route) -> Call:
        return route.call(self, stream_id, route)

    # -- what asyncio calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        self.peer = peer_name(transport)
        if not self.endpoint.accept(self, transport):
            transport.abort()
            return
        self._flush()
        self._set_timer()

    def get_buffer(self, _: int) -> memoryview:
        memory = self.connection.reader.memory()
        self._direct = memory is not None
        if memory is not None:
            return memory
        rest = self._rest
        if not rest:
            return self.endpoint.scratch
        self.endpoint.scratch[: len(rest)] = rest
        return self.endpoint.scratch[len(rest) :]

    def buffer_updated(self, size: int) -> None:
        connection = self.connection
        now = connection.now = self.loop.time()
        self._passing = True
        done = 0
        if self._direct:
            connection.filled(size)
        else:
            size += len(self._rest)
            scratch = self.endpoint.scratch
            done = connection.receive(scratch[:size])
            self._rest = bytes(scratch[done:size]) if done < size else b""
        self._passing = False
        if self.begun:
            begun, self.begun = self.begun, []
            for call in begun:
                call.await_rest()
        self._flush()
        reader, streams = connection.reader, len(connection.streams)
        in_block = reader.in_block or len(self._rest) > HEADER_SIZE
        anew = done > 0 and not reader.in_block
        self._lifetime.heard(
            now, opened=reader.opened, in_block=in_block, streams=streams, anew=anew
        )
        if in_block:
            self._look_by(now + self.endpoint.ages.opening)

    @property
    def agreed(self) -> bool:
        """Whether client and server have agreed on HTTP/2 in their TLS handshake."""
        assert self._transport is not None
        found = self._transport.get_extra_info("ssl_object")
        return found is not None and found.selected_alpn_protocol() == "h2"

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self.connection.lost()
        if self._timer is not None:
            self._timer.cancel()
        self.endpoint.forget(self)

    def pause_writing(self) -> None:
        self.outbox.paused = True

    def resume_writing(self) -> None:
        self.outbox.paused = False
        self.outbox.pump()
        self.wake()

    # -- what calls and the endpoint ask for --------------------------------------------------

    def wake(self) -> None:
        """Something is to be written at the end of this turn of the loop."""
        if not (self._armed or self._passing):
            self._armed = True
            self.loop.call_soon(self._armed_flush)

    def drain(self) -> None:
        """Ask the client to leave when its calls are done."""
        self._lifetime.draining(self.loop.time())
        self.connection.drain()
        self.wake()
        self._set_timer()

    def close(self) -> None:
        """Leave now; calls that are under way are cancelled."""
        self.connection.finish_draining()
        self.connection.lost()
        self._flush()

    def abort(self) -> None:
        """Leave without another word."""
        if self._transport is not None:
            self._transport.abort()

    # -- inside -------------------------------------------------------------------------------

    def _armed_flush(self) -> None:
        self._armed = False
        self._flush()

    def _flush(self) -> None:
        outbox, transport = self.outbox, self._transport
        assert transport is not None
        if transport.is_closing():
            return
        while outbox and not outbox.paused:
            parts = outbox.take()
            if len(parts) == 1:
                transport.write(parts[0])
            else:
                transport.writelines(parts)
            outbox.pump()
        if self.connection.closing:
            if outbox:
                transport.write(b"".join(outbox.take()))
            transport.close()
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_later(_CLOSING, transport.abort)

    def _look_by(self, time: float) -> None:
        """Have a timer that is due by then."""
        if self._timer is None or self._timer.when() > time:
            self._set_timer()

    def _set_timer(self) -> None:
        """Look at the connection again when its age asks for it."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._timer is not None:
            self._timer.cancel()
        due = self._lifetime.due(self.loop.time())
        self._timer = None if due == inf else self.loop.call_at(due, self._look)

    def _look(self) -> None:
        connection, now = self.connection, self.loop.time()
        self._lifetime.counted(now, len(connection.streams))
        while (step := self._lifetime.step(now)) is not Step.NOTHING:
            if step is Step.CLOSE:
                self.close()
                return
            if step is Step.PING:
                self.keepalives += 1
                self.outbox.say(frames.ping(_KEEPALIVE))
            elif step is Step.DRAIN:
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
