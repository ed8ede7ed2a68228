"""When a connection is pinged, asked to end, or given up. Pure: told the time, in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf

_TWO_HOURS = 7200.0


class Strikes:
    """Counts pings that come too often; as gRPC does, those after responses are not held against.

    `interval` is the shortest time between pings; without streams it is two hours, unless
    `without_calls`. Of more than `limit` in a row that are too early, one is too many; a limit of
    0 allows any number.
    """

    def __init__(
        self, interval: float = 0.0, limit: int = 0, *, without_calls: bool = True
    ) -> None:
        self._interval = interval
        self._limit = limit
        self._without_calls = without_calls
        self._count = 0
        self._next = -inf
        self._sent = -1

    def ping(self, now: float, sent: int, streams: bool) -> bool:
        """A ping came, after `sent` bytes of responses in all; whether it is one too many."""
        if sent != self._sent:
            self._sent, self._count, early = sent, 0, False
        else:
            early = now < self._next
        interval = self._interval if streams or self._without_calls else _TWO_HOURS
        self._next = now + interval
        if early:
            self._count += 1
        return early and 0 < self._limit < self._count


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """Times of a connection in seconds; `inf` for never.

    `opening` is for the client's preface and for each header block, `ping_after` of silence a
    ping goes out, which has to be answered within `ping_timeout`. After `age` the client is asked
    to leave, as it is after `idle` without a call; its calls then have `grace`, which says
    nothing about the end of the server.
    """

    opening: float = 20.0
    ping_after: float = inf
    ping_timeout: float = 20.0
    ping_without_calls: bool = False
    age: float = inf
    idle: float = inf
    grace: float = inf
    drain_answer: float = 5.0


class Step(Enum):
    """What to do about a connection now."""

    NOTHING = 0
    PING = 1
    DRAIN = 2
    FINISH_DRAINING = 3
    CLOSE = 4


class Lifetime:
    """Decides what the time asks of one connection. Its owner reports what happens on it."""

    def __init__(self, ages: Ages, now: float) -> None:
        self._ages = ages
        self._began = self._heard = self._quiet_since = now
        self._opened = False
        self._streams = 0
        self._pinged = inf
        self._drain_at = now + ages.age
        self._drained = self._aged = inf
        self._finished = False
        self._block_since = inf

    def heard(
        self, now: float, *, opened: bool, in_block: bool, streams: int, anew: bool = False
    ) -> None:
        """Bytes came; what the connection is like after them.

        `in_block` is what has no end yet, of a header block or of a frame that may hold one;
        `anew` is when it has begun with these bytes.
        """
        self._heard = now
        self._pinged = inf
        self._opened = opened
        if not in_block:
            self._block_since = inf
        elif anew or self._block_since == inf:
            self._block_since = now
        self.counted(now, streams)

    def counted(self, now: float, streams: int) -> None:
        """How many streams there are now."""
        if self._streams and not streams:
            self._quiet_since = now
        self._streams = streams

    def draining(self, now: float) -> None:
        """The client was asked to leave, since the server ends."""
        self._drained = min(self._drained, now)

    def step(self, now: float) -> Step:
        """What to do now; ask again until it is nothing."""
        ages = self._ages
        if now >= self._give_up_at():
            return Step.CLOSE
        if self._drained == inf and now >= self._leave_at():
            self._drained = self._aged = now
            return Step.DRAIN
        if not self._finished and now >= self._drained + ages.drain_answer:
            self._finished = True
            return Step.FINISH_DRAINING
        if now >= self._ping_at():
            self._pinged = now
            return Step.PING
        return Step.NOTHING

    def due(self, now: float) -> float:
        """When to ask again, at the latest, unless a header block begins; `inf` for never."""
        ages = self._ages
        leave = min(self._leave_at(), now + ages.idle) if self._drained == inf else inf
        finish = inf if self._finished else self._drained + ages.drain_answer
        ping = min(self._ping_at(), now + ages.ping_after) if self._pinged == inf else inf
        return min(self._give_up_at(), leave, finish, ping)

    def _give_up_at(self) -> float:
        ages = self._ages
        opening = inf if self._opened else self._began + ages.opening
        return min(
            opening,
            self._block_since + ages.opening,
            self._pinged + ages.ping_timeout,
            self._aged + ages.grace,
        )

    def _leave_at(self) -> float:
        idle = inf if self._streams else self._quiet_since + self._ages.idle
        return min(self._drain_at, idle)

    def _ping_at(self) -> float:
        wanted = self._streams or self._ages.ping_without_calls
        return self._heard + self._ages.ping_after if wanted and self._pinged == inf else inf
