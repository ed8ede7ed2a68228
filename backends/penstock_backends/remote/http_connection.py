"""`HttpConnection`: one exchange at a time over HTTP/1.1, seen from the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

_MOST_HEADERS = 64 << 10


class HttpCall:
    """One exchange under way: a subclass takes its answer.

    `ended` is called once, and nothing after it; its reason is empty where the answer was whole.
    """

    connection: HttpConnection | None = None

    def begun(self, status: int, headers: dict[bytes, bytes]) -> None:
        """The head of the answer has come; names of headers are in small letters."""
        raise NotImplementedError

    def received(self, data: bytes) -> None:
        """A part of the body has come."""
        raise NotImplementedError

    def ended(self, reason: str, *, untouched: bool = False) -> None:
        """The exchange has ended; `untouched` says that the server has not got it."""
        raise NotImplementedError


class HttpConnection(asyncio.Protocol):
    """A connection that is kept for the next exchange where both sides allow it.

    `on_free` is called when an exchange has ended so, `on_lost` when the connection is gone.
    `activity` counts reads with something in them.
    """

    def __init__(
        self,
        on_free: Callable[[HttpConnection], None],
        on_lost: Callable[[HttpConnection], None],
    ) -> None:
        self._on_free = on_free
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._call: HttpCall | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._headers: dict[bytes, bytes] = {}
        self._size = 0
        self._kept = self._reused = False
        self._began = 0  # the activity when the exchange began
        self.activity = 0

    @property
    def usable(self) -> bool:
        """Whether an exchange may be started."""
        return self._transport is not None and self._call is None

    def start(self, call: HttpCall, request: bytes) -> None:
        """Send a request: its head and its body."""
        assert self._transport is not None
        self._call = call
        self._reused, self._began = self._parser is not None, self.activity
        call.connection = self
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self._size = {}, 0
        self._transport.write(request)

    def cancel(self, call: HttpCall) -> None:
        """Give up an exchange, which HTTP/1.1 can only do with the connection."""
        if self._call is call:
            self._call = None
            self.close()

    def pause(self) -> None:
        """Read no more, since the reader is full."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._transport is not None:
            self._transport.resume_reading()

    def close(self, reason: str = "the connection was closed") -> None:
        """Close the connection; an exchange under way fails."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._lost(reason)

    # -- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost("the server closed the connection" if exc is None else f"connection lost: {exc}")

    def data_received(self, data: bytes) -> None:
        self.activity += 1
        parser = self._parser
        if parser is None or self._call is None:
            self.close("the server talks without being asked")
            return
        try:
            parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__ or error
            self.close(f"not an answer of HTTP/1.1: {cause}")

    # -- httptools ----------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value)
        if self._size > _MOST_HEADERS:
            raise httptools.HttpParserError("its headers are too large")
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._kept = self._parser.should_keep_alive()
        status = self._parser.get_status_code()
        if self._call is not None and status >= 200:
            self._call.begun(status, self._headers)

    def on_body(self, body: bytes) -> None:
        if self._call is not None:
            self._call.received(body)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self._parser.get_status_code() < 200:  # an interim answer
            self._headers, self._size = {}, 0
            return
        call, self._call = self._call, None
        transport = self._transport
        if transport is not None and self._kept:
            transport.resume_reading()
            self._on_free(self)
        elif transport is not None:
            self._transport = None  # nothing may be asked of it any more
            transport.close()
        if call is not None:
            call.connection = None
            call.ended("")

    def _lost(self, reason: str) -> None:
        call, self._call = self._call, None
        self._on_lost(self)
        if call is not None:
            call.connection = None
            # The server has closed a kept connection while the request was on its way.
            call.ended(reason, untouched=self._reused and self.activity == self._began)
