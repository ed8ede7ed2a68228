"""Limits of one HTTP connection: the size of a head, and how long a client may take to send."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf

FAREWELL = 1.0
"""Seconds of one period of a `FarewellClock`."""

_GRACE = 1.0
"""Seconds by which a timer may be late; a client whose timer was later gets as many more, once."""

_MOST_PERIODS = 5
_FAREWELL_PART = 64 << 10
"""Bytes in a period of a client that goes on sending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Limits of HTTP connections; sizes are in bytes, times in seconds.

    A head is the request line and its header fields. It has `opening` from the connection, or from
    its first byte on one that has served before. A body may come in `max_chunks` that are not
    empty; `body_part` bytes of it, or its end, must come in each `body_period`. `idle` is how long
    a connection may wait for its next request, `sending` how long its client may take nothing of
    what is written.
    """

    max_head_size: int = 64 << 10
    max_fields: int = 100
    max_chunks: int = 65_536
    opening: float = 20.0
    body_period: float = 20.0
    body_part: int = 10_000
    idle: float = 90.0
    sending: float = 60.0


class _Phase(Enum):
    """The part of a request that the client sends next."""

    FIRST_HEAD = 0
    HEAD = 1
    BODY = 2
    NOTHING = 3


class ReceiveClock:
    """Timeouts of a client that sends too slowly, from events that its connection reports."""

    def __init__(self, limits: HttpLimits, now: float) -> None:
        self._limits = limits
        self._phase = _Phase.FIRST_HEAD
        self.since = now
        self._extended: float | None = None
        self._received = 0
        self._answering = False

    @property
    def in_request(self) -> bool:
        """Whether the client has begun a request and not ended it."""
        return self._phase in (_Phase.HEAD, _Phase.BODY)

    @property
    def in_body(self) -> bool:
        return self._phase is _Phase.BODY

    def bytes_received(self, now: float) -> None:
        """Report bytes of the connection, before they are parsed."""
        if self._phase is _Phase.FIRST_HEAD:
            self._phase = _Phase.HEAD  # its time runs since the connection was made
        else:
            self.head_begun(now)

    def head_begun(self, now: float) -> None:
        """Report the beginning of a head, which came with the end of the request before it."""
        if self._phase is _Phase.NOTHING:
            self._phase, self.since = _Phase.HEAD, now

    def head_completed(self, now: float) -> None:
        """Report the end of a request's head."""
        self._phase, self.since, self._received = _Phase.BODY, now, 0
        self._answering = True

    def body_received(self, size: int) -> None:
        """Report bytes of a request's body."""
        self._received += size

    def request_completed(self, now: float) -> None:
        """Report the end of a request: what comes next is another one's head."""
        self._phase, self.since = _Phase.NOTHING, now

    def answered(self, now: float) -> None:
        """Report that all requests so far have their answers."""
        self._answering = False
        if self._phase is _Phase.NOTHING:
            self.since = now

    @property
    def due(self) -> float:
        """The time of the next call of `expired`; `inf` for never."""
        limits = self._limits
        if self._phase is _Phase.NOTHING:
            return inf if self._answering else self.since + limits.idle
        return self.since + (limits.body_period if self.in_body else limits.opening)

    def expired(self, now: float, *, reading: bool) -> bool:
        """Whether the client's time is up; not while the server is not `reading` from it.

        Nor where this is asked late, the first time: then the server was stopped, or had no
        processor, and may not have read what the client has sent in time.
        """
        due = self.due
        if now < due:
            return False
        if now > due + _GRACE and self.since != self._extended:
            self.since = self._extended = self.since + now + _GRACE - due
            return False
        enough = self.in_body and self._received >= self._limits.body_part
        if reading and not enough:
            return True
        self.since, self._received = now, 0
        return False


class SendClock:
    """The timeout of a client that does not read, from how many bytes are unsent.

    `unsent` counts them by who holds them: any change says that some have gone on their way.
    """

    def __init__(self, seconds: float, now: float, unsent: tuple[int, ...]) -> None:
        self._seconds = seconds
        self._since = now
        self._unsent = unsent

    def stalled(self, now: float, unsent: tuple[int, ...]) -> bool:
        """Whether the bytes are the same as all the time before."""
        if unsent != self._unsent:
            self._since, self._unsent = now, unsent
            return False
        return now - self._since >= self._seconds


class FarewellClock:
    """The time in which a refused client's further bytes are dropped, so that it reads why.

    Closed with bytes unread, the socket would be reset, and the answer lost. A client that sends
    nothing, or but a little, has one period; one that goes on sending has some.
    """

    def __init__(self) -> None:
        self._periods = _MOST_PERIODS
        self._received = 0

    def bytes_received(self, size: int) -> None:
        """Report bytes that are dropped."""
        self._received += size

    def expired(self) -> bool:
        """Whether the client's time is up; asked after each period of `FAREWELL` seconds."""
        self._periods -= 1
        sending = self._received >= _FAREWELL_PART
        self._received = 0
        return not (sending and self._periods)


class HeadSize:
    """Counter of the bytes around bodies: heads, trailers, sizes and extensions of chunks."""

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._in_head = True
        self._fed = self._fields = self._field_bytes = self._chunks = 0

    @property
    def begun(self) -> bool:
        """Whether a part of a head has come, and not its end."""
        return self._in_head and self._fed > 0

    def begin(self) -> None:
        """The next head begins."""
        self._in_head = True
        self._fed = self._fields = self._field_bytes = self._chunks = 0

    def complete(self) -> None:
        """The head is complete."""
        self._in_head = False
        self._fed = 0

    def body_received(self) -> None:
        """Part of a body was parsed: the bytes fed last were not only around it."""
        if not self._in_head:
            self._fed = 0

    def feed(self, available: int) -> int:
        """The number of `available` bytes to parse next; 0 if there are too many."""
        room = max(self._limits.max_head_size - self._fed, 0)
        size = min(available, room) if self._in_head else available
        if not self._in_head and not room:
            return 0
        self._fed += size
        return size

    def add(self, size: int) -> bool:
        """Count so many bytes of a request line or field; false if they are too many.

        Of a head that begins behind a body in the same bytes, this is all that is counted.
        """
        self._field_bytes += size
        return self._field_bytes <= self._limits.max_head_size

    def add_field(self, size: int) -> bool:
        """As `add`, for one field."""
        self._fields += 1
        return self.add(size) and self._fields <= self._limits.max_fields

    def add_chunk(self) -> bool:
        """Count a chunk of a body, or its end; false if they are too many."""
        self._chunks += 1
        return self._chunks <= self._limits.max_chunks + 1
