"""The asyncio protocol of one HTTP connection: uvicorn's, with limits of our own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from math import inf
from typing import Any, cast

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from penstock.gateway.connection_limits import HeadSize, HttpLimits, ReceiveClock
from penstock.gateway.request_scope import HEADER_NAMES
from penstock.system.fd_reserve import DescriptorReserve

_FIELD_MARKS = len(b":\r\n")
_LINGER_SECONDS = 1.0
"""Seconds for a client to read why it is refused; what it sends meanwhile is discarded."""


class _HeadTooLargeError(Exception):
    """Ends the parsing of a head that is too large."""


@dataclass(frozen=True, slots=True)
class ConnectionRules:
    """The limits and the descriptor reserve that the connections of all HTTP ports share."""

    limits: HttpLimits = field(default_factory=HttpLimits)
    descriptors: DescriptorReserve = field(default_factory=DescriptorReserve)


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits on heads (RFC 6585, section 5) and on the client's time.

    It also keeps the case of header names, may be closed for its descriptor while it is idle, and
    calls `lost` on disconnect.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        rules: ConnectionRules,
        lost: Callable[[], None],
    ) -> None:
        super().__init__(config, state, {})
        self._descriptors = rules.descriptors
        self._close_on_loss = lost
        self._head = HeadSize(rules.limits)
        self._too_large = False
        self._clock = ReceiveClock(rules.limits, self.loop.time())
        self._timer: asyncio.TimerHandle | None = None
        self._refused = False

    # -- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._descriptors.admits(transport):
            transport.abort()
            return
        self._descriptors.became_idle(self, self.transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Parse the data, but of a head no more than its limit."""
        self._clock.bytes_received(self.loop.time())
        rest = memoryview(data)
        while rest and not (self._refused or self.transport.is_closing()):
            if not (size := self._head.feed(len(rest))):
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                return
            super().data_received(bytes(rest[:size]) if size < len(data) else data)
            rest = rest[size:]
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._descriptors.became_busy(self)
        self._descriptors.released(self.transport)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)
        self._close_on_loss()

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
        self._descriptors.became_busy(self)

    def on_body(self, body: bytes) -> None:
        self._head.body_received()
        self._clock.body_received(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head.begin()
        self._clock.request_completed(self.loop.time())
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._clock.answered(self.loop.time())
            self._descriptors.became_idle(self, self.transport)
            self._watch()

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
        if not self._clock.expired(self.loop.time(), reading=not self.flow.read_paused):
            self._watch()
        elif self._clock.in_request:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close()
