"""The asyncio protocol of one HTTP connection: uvicorn's, with limits of our own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from math import inf
from typing import Any, cast

from uvicorn import Config
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from penstock.core.access import AccessSink
from penstock.gateway.connection_limits import HeadSize, HttpLimits, ReceiveClock
from penstock.gateway.observability.accesses import refused
from penstock.gateway.request_scope import HEADER_NAMES
from penstock.gateway.unparsed import Unparsed
from penstock.system.fd_reserve import DescriptorReserve

_FIELD_MARKS = len(b":\r\n")
_LINGER_SECONDS = 1.0
"""Seconds for a client to read why it is refused; what it sends meanwhile is discarded."""

_MAX_WAITING = 16
"""Requests of a connection that are parsed while an earlier one is being answered."""

_SLICES_PER_TURN = 512
"""Slices and parts of bodies that are parsed before others have their turn: about 1 ms."""


class _HeadTooLargeError(Exception):
    """Ends the parsing of a head that is too large."""


@dataclass(frozen=True, slots=True)
class ConnectionRules:
    """The limits, descriptor reserve and access log that connections of all HTTP ports share."""

    limits: HttpLimits = field(default_factory=HttpLimits)
    descriptors: DescriptorReserve = field(default_factory=DescriptorReserve)
    access: AccessSink | None = None


class _ReadFlow(FlowControl):
    """uvicorn's flow control, whose reading the connection may hold whatever a handler wants."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._held = False
        self._reading = True

    @property
    def reading(self) -> bool:
        """Whether bytes are read from the client."""
        return self._reading

    def hold(self, held: bool) -> None:
        """Hold all reading, or let it go on once nothing else has paused it."""
        self._held = held
        self._apply()

    def pause_reading(self) -> None:
        self.read_paused = True
        self._apply()

    def resume_reading(self) -> None:
        self.read_paused = False
        self._apply()

    def _apply(self) -> None:
        reading = not (self.read_paused or self._held)
        if reading is not self._reading:
            self._reading = reading
            (self._transport.resume_reading if reading else self._transport.pause_reading)()


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits on heads (RFC 6585, section 5) and on the client's time.

    It parses a few pipelined requests ahead, in slices between which other connections have their
    turns, and answers them all where the client has ended its side (RFC 9112, section 9.6). It also
    keeps the case of header names, may be closed for its descriptor while it is idle, and calls
    `lost` on disconnect.
    """

    flow: _ReadFlow

    def __init__(
        self,
        config: Config,
        state: ServerState,
        rules: ConnectionRules,
        lost: Callable[[], None],
    ) -> None:
        super().__init__(config, state, {})
        self._descriptors = rules.descriptors
        self._access = rules.access
        self._close_on_loss = lost
        self._head = HeadSize(rules.limits)
        self._too_large = False
        self._clock = ReceiveClock(rules.limits, self.loop.time())
        self._timer: asyncio.TimerHandle | None = None
        self._refused = False
        self._unparsed = Unparsed()
        self._turn: asyncio.Handle | None = None  # parses what waits
        self._slices = 0  # parsed in this turn
        self._answered: RequestResponseCycle | None = None  # begun last; `cycle` was parsed last
        self._pipelined = False  # since the connection was idle
        self._ended = False  # by the client, which still reads

    # -- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _ReadFlow(transport)
        if not self._descriptors.admits(transport):
            transport.abort()
            return
        self._descriptors.became_idle(self, self.transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._clock.bytes_received(self.loop.time())
        self._unparsed.add(data)
        if self._turn is None:
            self._parse()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection for the answers to pipelined requests.

        A client with one request that ends its side is taken for gone, and its request cancelled.
        """
        if not (self._pipelined or self._unparsed):
            return False
        self._ended = True
        self.flow.hold(True)
        self._parse_soon()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._descriptors.became_busy(self)
        self._descriptors.released(self.transport)
        if self._timer is not None:
            self._timer.cancel()
        if self._turn is not None:
            self._turn.cancel()
        self._unparsed.clear()
        self.pipeline.clear()
        super().connection_lost(exc)
        if (answered := self._answered) is not None and not answered.response_complete:
            answered.disconnected = True
            answered.message_event.set()
        self._close_on_loss()

    # -- parsing ------------------------------------------------------------------------------

    def _parse(self) -> None:
        """Parse what one turn of the loop may, of a head no more than its limit."""
        self._turn = None
        self._slices = 0
        while self._unparsed and self._may_parse:
            if not (size := self._head.feed(self._next_size())):
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                break
            self._slices += 1
            super().data_received(self._unparsed.take(size))
        if self._refused or self.transport.is_closing():
            self._unparsed.clear()
            self.flow.hold(self._ended)  # what comes is discarded
            return
        if self._unparsed and not self._enough_wait:
            self._parse_soon()
        self.flow.hold(bool(self._unparsed) or self._enough_wait or self._ended)
        self._close_if_ended()
        self._watch()

    def _parse_soon(self) -> None:
        if self._turn is None:
            self._turn = self.loop.call_soon(self._parse)

    def _next_size(self) -> int:
        return self._unparsed.next_size(in_body=self._clock.in_body)

    @property
    def _may_parse(self) -> bool:
        return not (
            self._slices >= _SLICES_PER_TURN
            or self._enough_wait
            or self._refused
            or self.transport.is_closing()
        )

    @property
    def _enough_wait(self) -> bool:
        """Whether no more is parsed before a request that waits is begun."""
        waiting = len(self.pipeline)
        return waiting >= _MAX_WAITING or (waiting > 0 and len(self.cycle.body) > HIGH_WATER_LIMIT)

    def _close_if_ended(self) -> None:
        """Close a connection whose client has ended, once its complete requests are answered."""
        if not self._ended or self._unparsed or self.pipeline or self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is None or cycle.response_complete or self._clock.in_body:
            self.transport.close()

    # -- callbacks of the parser --------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._names: list[bytes] = []
        cast(dict[str, Any], self.scope)[HEADER_NAMES] = self._names

    def on_url(self, url: bytes) -> None:
        self._check_head(self._head.add(len(url)))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._check_head(self._head.add_field(len(name) + len(value) + _FIELD_MARKS))
        super().on_header(name, value)
        self._names.append(name)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._head.complete()
        self._clock.head_completed(self.loop.time())
        self._unparsed.body_begins(_content_length(self.headers))
        self._pipelined = self._pipelined or bool(self.pipeline)
        self._descriptors.became_busy(self)

    def on_body(self, body: bytes) -> None:
        self._head.body_received()
        self._clock.body_received(len(body))
        self._unparsed.body_received(len(body))
        self._slices += 1
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head.begin()
        self._clock.request_completed(self.loop.time())
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._unparsed or self._pipelined or self._ended:
            self._parse_soon()
        if self.cycle.response_complete:
            self._pipelined = False
            self._clock.answered(self.loop.time())
            self._descriptors.became_idle(self, self.transport)
            self._watch()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _check_head(self, fits: bool) -> None:
        if not fits:
            self._too_large = True
            raise _HeadTooLargeError

    # -- refusals -----------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that the parser or its callbacks have rejected."""
        del msg
        large = self._too_large
        self._refuse(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if large else HTTPStatus.BAD_REQUEST
        )

    def close_idle(self) -> None:
        """Close a connection that waits for a request."""
        self.transport.close()

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer with an error, and read no further request from this connection."""
        self._refused = True
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            if self._clock.in_body and self.pipeline:  # its answer would overtake others
                self.pipeline.popleft()
                last = self.pipeline[0][0] if self.pipeline else self._answered
                self.cycle = cast(RequestResponseCycle, last)
                self.cycle.keep_alive = False
                return
            if not self._clock.in_body:  # what is being answered was complete
                cycle.keep_alive = False
                return
            if cycle.response_started:
                self.transport.abort()
                return
            cycle.disconnected = True  # ends the handler, which waits for the body
            cycle.message_event.set()
        self._send_error(status)

    def _send_error(self, status: HTTPStatus) -> None:
        """Send an error as the last bytes, and leave the client a moment to read them."""
        self._pipelined = False
        if self._access is not None:
            self._access.add(refused(self.client, status))
        text = status.phrase.encode()
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: text/plain; charset=utf-8\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (status, text, len(text), text)
        )
        self.transport.write_eof()
        self.flow.resume_reading()
        if self._timer is not None:
            self._timer.cancel()
        # Closed with bytes unread, the socket would be reset, and the answer lost.
        self._timer = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

    # -- time ---------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Arm the timer for when the clock is due."""
        due = self._clock.due
        if due == inf or self._refused or self.transport.is_closing():
            return
        if self._timer is None or self._timer.when() > due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_at(due, self._check_time)

    def _check_time(self) -> None:
        self._timer = None
        if self._refused or self.transport.is_closing():
            return
        if not self._clock.expired(self.loop.time(), reading=self.flow.reading):
            self._watch()
        elif self._clock.in_request:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close()


def _content_length(headers: list[tuple[bytes, bytes]]) -> int | None:
    """The length of a body that is not in chunks, which the parser has checked."""
    return next((int(value) for name, value in headers if name == b"content-length"), None)
