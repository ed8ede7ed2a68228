"""The server's side of an HTTP/1.1 connection: requests in, responses out, in the same order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from http import HTTPStatus

from penstock.core.buffer import Buffer
from penstock.http1.limits import HttpLimits, ReceiveClock
from penstock.http1.requests import (
    BACKLOG,
    Exchange,
    Field,
    HeadCache,
    RequestHead,
    RequestParser,
    RequestSink,
)
from penstock.http1.responses import CONTINUE, ResponseWriter, SendBuffer, error_response

_DIRECT = 32 << 10
"""Bytes that are missing of a body, from which they are read into its memory past the parser."""

_AT_ONCE = 1 << 18
"""Bytes that are read of a body before others have their turn."""

_UNWANTED = memoryview(bytearray(_DIRECT))
"""Memory for bytes that nobody reads."""

_MAX_WAITING = 16
"""Requests that are parsed while an earlier one is being answered."""

_SLICES_PER_TURN = 512
"""Slices and parts of bodies that are parsed before others have their turn: about 1 ms."""


_SLICES_PER_REQUEST = 64
"""As how many slices a request counts: to answer it takes some 100 us where that needs no wait."""


class Connection(RequestSink):
    """One connection, told of bytes and times, and asked what to write.

    Requests are begun one after another, each when the response before it is complete and the
    client reads it. `closing` says that the connection is to be closed once everything is written;
    `lingering`, that the client has sent what nobody will read, and needs a moment to read why.
    `refused` is called with the status of a request that is refused before it is an exchange.
    """

    def __init__(
        self,
        limits: HttpLimits,
        open_exchange: Callable[[RequestHead], Exchange],
        refused: Callable[[HTTPStatus], None],
        now: float,
        heads: HeadCache | None = None,
    ) -> None:
        self.send_buffer = SendBuffer()
        self._writer = ResponseWriter(self.send_buffer)
        self.exchanges: deque[Exchange] = deque()
        self.closing = self.lingering = self.aborted = False
        self._open = open_exchange
        self._on_refused = refused
        self._clock = ReceiveClock(limits, now)
        self._unparsed = Unparsed()
        self._parser = RequestParser(limits, self)
        self._heads = HeadCache() if heads is None else heads
        self._receiving: Exchange | None = None
        self._bypassed = False
        self._refusal: HTTPStatus | None = None
        self._now = now
        self._advancing = self._ended = self._pipelined = False
        self._slices = self._begun = 0  # what was parsed in this turn, and heads of that
        self._stopped = False  # nothing more is parsed
        self._left_idle = False  # since the last time that was told

    # -- what the shell asks ------------------------------------------------------------------

    @property
    def receiving(self) -> Exchange | None:
        """The request whose body is not complete, if it is one that is counted and kept."""
        receiving = self._receiving
        if receiving is None or receiving.finished or receiving.body.quota is None:
            return None
        return receiving

    def refuse_body(self) -> None:
        """Refuse the request that is being received, for want of memory."""
        if self._receiving is not None and not self._stopped:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
            self._advance()

    @property
    def idle_since(self) -> float | None:
        """Since when no request is in flight; `None` while one is."""
        return None if self.exchanges else self._clock.since

    def direct_memory(self) -> memoryview | None:
        """Memory that the next bytes are to be read into, for `filled`; mostly `None`."""
        receiving = self._receiving
        if receiving is None or self._stopped or self._unparsed:
            return None
        body = receiving.body
        if body.declared is None:
            return None
        left = body.declared - body.received
        if receiving.finished:  # what the parser has not seen the beginning of, it cannot end
            return _UNWANTED[:left] if self._bypassed else None
        if left < _DIRECT and not self._bypassed:
            return None
        memory = body.memory()
        return None if memory is None else memory[:_AT_ONCE]

    # -- what the shell tells -----------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes from the client, and parse what one turn of the loop may."""
        self._clock.bytes_received(now)
        if self._stopped:
            return
        if self._between_requests and (known := self._heads.find(data)) is not None:
            head, size = known
            self._now = now
            self.on_head(head)
            self.on_body_part(data[size:])
            self.on_end()
            self._advance()
            return
        waiting = bool(self._unparsed)
        self._unparsed.add(data)
        if not waiting:
            self.parse(now)

    def parse(self, now: float) -> None:
        """Parse bytes that wait, of a head no more than its limit."""
        self._now = now
        self._slices = self._begun = 0
        while self._unparsed and self._slices < _SLICES_PER_TURN:
            if self._stopped or self._enough_waits:
                break
            size = self._unparsed.next_size(in_body=self._receiving is not None)
            at_begin, begun = self._at_begin, self._begun
            if not (size := self._parser.room(size)):
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                break
            self._slices += 1
            data = self._unparsed.take(size)
            refusal = self._parser.feed(data)
            if refusal is not None:
                self._refuse(refusal)
            elif at_begin and self._begun == begun + 1 and self._receiving is not None:
                self._heads.add(data, self._receiving.head)
        if self._stopped:
            self._unparsed.clear()
        elif self._parser.head_begun:
            self._clock.head_begun(now)
        self._advance()

    def filled(self, size: int, now: float) -> None:
        """Take bytes that were read into `direct_memory`."""
        self._now = now
        self._clock.body_received(size)
        self._unparsed.body_received(size)
        self._bypassed = True
        receiving = self._receiving
        assert receiving is not None
        receiving.body.filled(size)
        if receiving.body.received == receiving.body.declared:
            self._bypassed = False
            self._parser.skip_body()
        elif receiving.begun:
            receiving.on_body()
        self._advance()

    def end_received(self) -> bool:
        """The client has ended its side; returns whether it still gets responses.

        A client with one request that ends its side is taken for gone (RFC 9112, section 9.6, lets
        a server answer the requests before it).
        """
        unwritten = bool(self.send_buffer) and not self.exchanges
        if not (self._pipelined or self._unparsed or unwritten):
            return False
        self._ended = True
        return True

    def settle(self, now: float) -> tuple[bool, bool, float]:
        """Go on after responses were written: with the next request, times, and the end.

        Returns whether more should be read from the client, whether bytes wait that can be parsed
        now, so that `parse` must be called soon, and the time of the next call of `check_time`,
        `inf` for never.
        """
        if self.exchanges and not self.exchanges[0].begun:
            self._advance()
        if self._left_idle:
            self._left_idle = False
            self._clock.answered(now)
        if self._ended and not self._unparsed and not self.closing:
            front = self.exchanges[0] if self.exchanges else None
            if front is None or front is self._receiving:
                self.closing = True
        wants, parses = not self._ended, bool(self._unparsed)
        if self._stopped:
            parses = False
        elif len(self.exchanges) > 1 and self._enough_waits:
            wants = parses = False
        elif wants:
            receiving = self._receiving
            enough = receiving is not None and receiving.waits
            wants = not (parses or enough)
        return wants, parses, self._clock.due

    def check_time(self, now: float, *, reading: bool) -> bool:
        """Refuse a request whose client takes too long; returns whether to close an idle one."""
        if self._stopped or not self._clock.expired(now, reading=reading):
            return False
        if self._clock.in_request:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
            self._advance()
            return False
        return True

    def drain(self) -> None:
        """End the connection after the response that is being sent.

        A request of which only a part has come is refused: its rest may never come.
        """
        self._writer.draining = True
        if self._clock.in_request and not self._stopped:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
            self._advance()
        elif not self.exchanges:
            self.closing = True

    def lost(self) -> None:
        """The client has gone."""
        self._stopped = True
        self._parser.close()
        self._unparsed.clear()
        self.send_buffer.clear()
        self._receiving = None
        exchanges, self.exchanges = self.exchanges, deque()
        for exchange in exchanges:
            self._close(exchange)

    # -- responses ----------------------------------------------------------------------------

    def want_body(self, exchange: Exchange, size: int) -> None:
        """The reader of a body waits until there are `size` bytes of it."""
        body = exchange.body
        body.wanted = max(body.wanted, size)
        if exchange.head.expects_continue and not (exchange.continued or exchange.answered):
            exchange.continued = True
            if not (body.received or body.complete):
                self.send_buffer.add(CONTINUE)

    def respond(
        self, exchange: Exchange, status: int, fields: Sequence[Field], parts: Sequence[Buffer]
    ) -> None:
        """Send a whole response. Raises `ValueError` for a field that cannot be sent."""
        self._writer.whole(exchange, status, fields, parts)
        self._finish(exchange)

    def begin(self, exchange: Exchange, status: int, fields: Sequence[Field]) -> None:
        """Send the head of a response whose body follows in parts."""
        self._writer.begin(exchange, status, fields)

    def send(self, exchange: Exchange, data: Buffer) -> bool:
        """Send a part of the body; returns whether more would be written soon."""
        self._writer.part(exchange, data)
        return self.send_buffer.writable

    def end(self, exchange: Exchange) -> None:
        """End a response that was sent in parts."""
        self._writer.end(exchange)
        self._finish(exchange)

    def abort(self) -> None:
        """Break off: the response cannot be completed."""
        self.closing = self.aborted = True

    def _finish(self, exchange: Exchange) -> None:
        exchange.finished = True
        if not exchange.body.complete:
            exchange.body.discard()
        self._advance()

    # -- the order of exchanges ---------------------------------------------------------------

    @property
    def _at_begin(self) -> bool:
        """Whether what is parsed next is the first byte of a request."""
        return self._receiving is None and not self._parser.head_begun

    @property
    def _between_requests(self) -> bool:
        """Whether what is received next is the first byte of the only request in flight."""
        return self._at_begin and not (self.exchanges or self._unparsed)

    @property
    def _enough_waits(self) -> bool:
        """Whether no more is parsed before a request that waits is begun."""
        waiting = len(self.exchanges) - 1
        return waiting >= _MAX_WAITING or (
            waiting > 0 and self.exchanges[-1].body.received > BACKLOG
        )

    def _advance(self) -> None:
        """Begin the next request when the one before it is done."""
        if self._advancing:
            return
        self._advancing = True
        while self.exchanges and not self.closing and self._done(self.exchanges[0]):
            self.exchanges.popleft()
        if not (self.exchanges or self.closing):
            self._pipelined = False
            self._left_idle = True
            if self._refusal is not None:
                self._send_error(self._refusal)
            elif self._writer.draining:
                self.closing = True
        self._advancing = False

    def _done(self, front: Exchange) -> bool:
        """Begin the request if it was not; whether it is done, and the connection stays.

        It waits for a client that does not read the responses before it.
        """
        if not front.begun:
            if not self.send_buffer.writable:
                return False
            front.begun = True
            front.on_begin()
        if front.finished and not front.head.keep_alive:
            self._end_after(front)
            return False
        return front.finished and front is not self._receiving  # whose body is still to come

    def _end_after(self, last: Exchange) -> None:
        """Close once `last` is written; requests behind it are not answered."""
        self._stopped = self.closing = True
        if last is self._receiving or self._unparsed:
            self.lingering = True
        self.exchanges.popleft()
        while self.exchanges:
            self._close(self.exchanges.popleft())

    def _close(self, exchange: Exchange) -> None:
        if not exchange.closed:
            exchange.closed = True
            if not exchange.finished:
                exchange.on_closed()

    # -- refusals -----------------------------------------------------------------------------

    def _refuse(self, status: HTTPStatus) -> None:
        """Parse no more; answer with an error behind the responses to earlier requests."""
        self._stopped = True
        self._refusal = status
        receiving, self._receiving = self._receiving, None
        if receiving is None:
            return
        if receiving.answered:  # what has begun cannot become an error
            self._refusal = None
            if receiving.finished:
                receiving.head.keep_alive = False
                self.lingering = True
            else:
                self.abort()
            return
        self.exchanges.remove(receiving)
        self._close(receiving)

    def _send_error(self, status: HTTPStatus) -> None:
        """Send an error as the last bytes."""
        self._on_refused(status)
        self.send_buffer.add(error_response(status, self._parser.problem))
        self.closing = self.lingering = True

    # -- for the parser -----------------------------------------------------------------------

    def on_head(self, head: RequestHead) -> None:
        self._begun += 1
        self._slices += _SLICES_PER_REQUEST
        self._clock.head_completed(self._now)
        self._unparsed.body_begins(head.content_length)
        self._receiving = exchange = self._open(head)
        behind_others = bool(self.exchanges) or not self.send_buffer.writable
        self._pipelined = self._pipelined or behind_others
        self.exchanges.append(exchange)

    def on_body_part(self, data: bytes) -> None:
        exchange = self._receiving
        assert exchange is not None
        size = len(data)
        self._slices += 1
        self._clock.body_received(size)
        self._unparsed.body_received(size)
        exchange.body.feed(data)
        if exchange.begun:
            exchange.on_body()

    def on_end(self) -> None:
        exchange, self._receiving = self._receiving, None
        assert exchange is not None
        self._clock.request_completed(self._now)
        exchange.body.complete = True
        if exchange.begun:
            exchange.on_body()


_END = b"\r\n\r\n"
_CHUNKED_SLICE = 4 << 10


class Unparsed:
    """Received bytes that the parser has not seen yet.

    The parser takes all that it is fed, so what it is fed ends where a request may end: with an
    empty line, or with the last byte of a body whose length is known. A slice holds the ends of at
    most two heads, the second one of a slice before that ended within its empty line.
    """

    def __init__(self) -> None:
        self._data = b""
        self._start = 0
        self._body_left: int | None = None

    def __len__(self) -> int:
        return len(self._data) - self._start

    def add(self, data: bytes) -> None:
        """Append bytes of the connection."""
        self._data = self._data[self._start :] + data if self else data
        self._start = 0

    def clear(self) -> None:
        """Drop what waits."""
        self._data, self._start = b"", 0

    def body_begins(self, length: int | None) -> None:
        """Report the end of a head, and the bytes of the body behind it: `None` if in chunks."""
        self._body_left = length

    def body_received(self, size: int) -> None:
        """Report parsed bytes of the body."""
        if self._body_left is not None:
            self._body_left -= size

    def next_size(self, *, in_body: bool) -> int:
        """The bytes of the next slice, at least one of those that wait."""
        waiting = len(self)
        if in_body and self._body_left:
            return min(self._body_left, waiting)
        most = min(_CHUNKED_SLICE, waiting) if in_body else waiting
        end = self._data.find(_END, self._start, self._start + most)
        return most if end < 0 else end + len(_END) - self._start

    def take(self, size: int) -> bytes:
        """Remove and return so many bytes."""
        start = self._start
        self._start += size
        taken = self._data if size == len(self._data) else self._data[start : self._start]
        if self._start == len(self._data):
            self.clear()
        return taken
