"""Keepalive of a connection: pings, idle and age limits. Without a clock; times in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf

_TWO_HOURS = 7200.0


class PingStrikes:
    """Counts pings of the peer that come too early; as in gRPC, sent responses reset the count.

    `interval` is the least time between pings; without streams it is two hours, unless
    `without_calls`. More than `limit` early pings in a row are too many; a limit of 0 allows any
    number.
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
        """Count a ping, after `sent` bytes of responses in all; returns whether to disconnect."""
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
class ConnectionAges:
    """Timeouts of a connection in seconds; `inf` for never.

    `opening` limits the client's preface and each header block. After `ping_after` without data a
    ping is sent, which must be answered within `ping_timeout`. After `age`, and after `idle`
    without a call, the connection is drained (GOAWAY): the client has `drain_answer` to reply, and
    its calls have `grace` to finish. `grace` does not apply when the server shuts down.
    """

    opening: float = 20.0
    ping_after: float = inf
    ping_timeout: float = 20.0
    ping_without_calls: bool = False
    age: float = inf
    idle: float = inf
    grace: float = inf
    drain_answer: float = 5.0


class LifetimeAction(Enum):
    """The next action on a connection."""

    NOTHING = 0
    PING = 1
    DRAIN = 2
    FINISH_DRAINING = 3
    CLOSE = 4


class ConnectionLifetime:
    """Decides when to ping, drain or close a connection, from events that its owner reports."""

    def __init__(self, ages: ConnectionAges, now: float) -> None:
        self._ages = ages
        self._began = self._heard = self._quiet_since = now
        self._opened = False
        self._streams = 0
        self._pinged = inf
        self._drain_at = now + ages.age
        self._drained = self._aged = inf
        self._finished = False
        self._block_since = inf

    @property
    def heard(self) -> float:
        """When bytes were last received; at first, when the connection began."""
        return self._heard

    def bytes_received(
        self, now: float, *, opened: bool, in_block: bool, streams: int, anew: bool = False
    ) -> None:
        """Report received bytes, and the state of the connection after them.

        `in_block`: a header block, or a frame that may hold one, is incomplete; `anew`: it has
        begun with these bytes. `opened`: the preface is received.
        """
        self._heard = now
        self._pinged = inf
        self._opened = opened
        if not in_block:
            self._block_since = inf
        elif anew or self._block_since == inf:
            self._block_since = now
        self.streams_counted(now, streams)

    def streams_counted(self, now: float, streams: int) -> None:
        """Report the number of open streams."""
        if self._streams and not streams:
            self._quiet_since = now
        self._streams = streams

    def drain_started(self, now: float) -> None:
        """Report that the server has begun to drain the connection, since it shuts down."""
        self._drained = min(self._drained, now)

    def next_action(self, now: float) -> LifetimeAction:
        """The action due now; to be called again until there is none."""
        ages = self._ages
        if now >= self._give_up_at():
            return LifetimeAction.CLOSE
        if self._drained == inf and now >= self._leave_at():
            self._drained = self._aged = now
            return LifetimeAction.DRAIN
        if not self._finished and now >= self._drained + ages.drain_answer:
            self._finished = True
            return LifetimeAction.FINISH_DRAINING
        if now >= self._ping_at():
            self._pinged = now
            return LifetimeAction.PING
        return LifetimeAction.NOTHING

    def next_check(self, now: float) -> float:
        """Time of the next call of `next_action`, or earlier at a header block; `inf` for never."""
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
