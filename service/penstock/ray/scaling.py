"""How many replicas there should be: a decision by waiting time and by tokens in flight.

Nothing here knows Ray, a clock or a socket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """Bounds, what a replica should bear, and how long it must be otherwise before they change.

    `queue_seconds` is the mean time that requests wait for an instance, and `tokens` those in
    flight on a replica (0: not looked at). More replicas come after `up_seconds` of more, fewer
    after `down_seconds` of less. Raises `ValueError` for what cannot be.
    """

    least: int = 1
    most: int = 1
    queue_seconds: float = 0.05
    tokens: float = 0.0
    up_seconds: float = 10.0
    down_seconds: float = 120.0

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ValueError(f"least ({self.least}) must be 1 or more, most ({self.most}) not less")
        if self.queue_seconds <= 0:
            raise ValueError("queue_seconds must be positive")
        if min(self.tokens, self.up_seconds, self.down_seconds) < 0:
            raise ValueError("tokens, up_seconds and down_seconds must not be negative")

    def bounded(self, replicas: int) -> int:
        """The nearest number within the bounds."""
        return min(max(replicas, self.least), self.most)

    def wanted(self, replicas: int, loads: Sequence[ReplicaLoad]) -> int:
        """Replicas for this load, of which there are so many now; as many, where none is known.

        More is never answered with fewer. Between a quarter of `queue_seconds` and all of it
        nothing changes, so that one more or less does not go back and forth.
        """
        if not loads or not replicas:
            return self.bounded(replicas)
        waits = sum(load.queue_seconds for load in loads) / len(loads)
        if waits > 4 * self.queue_seconds:
            by_queue = 2 * replicas
        elif waits > self.queue_seconds:
            by_queue = replicas + 1
        else:
            by_queue = replicas - (waits < self.queue_seconds / 4)
        return self.bounded(max(by_queue, self._by_tokens(replicas, loads)))

    def _by_tokens(self, replicas: int, loads: Sequence[ReplicaLoad]) -> int:
        """Replicas for these tokens; a replica less only where a tenth is left on the others."""
        if not self.tokens:
            return 0
        # Of those that tell nothing, as much as of the others.
        tokens = sum(load.tokens for load in loads) / len(loads) * replicas
        needed = ceil(tokens / self.tokens)
        if needed >= replicas:
            return needed
        return min(replicas, ceil(tokens / (0.9 * self.tokens)))


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """What a replica bears: seconds that its requests wait, and tokens in flight."""

    queue_seconds: float = 0.0
    tokens: float = 0.0


class Decider:
    """Replicas over time: what a policy wants, once it has wanted it for long enough."""

    def __init__(self, policy: ScalingPolicy) -> None:
        self.policy = policy
        self._above: tuple[float, int] | None = None  # since when more, and the least of it
        self._below: tuple[float, int] | None = None  # since when fewer, and the most of it

    def decide(self, now: float, replicas: int, loads: Sequence[ReplicaLoad]) -> int:
        """The number that should be, from `replicas`, which should be now; `now` in seconds."""
        wanted = self.policy.wanted(replicas, loads)
        if self.policy.bounded(replicas) != replicas:
            return self._settled(self.policy.bounded(replicas))
        self._above = _kept(self._above, now, wanted, min) if wanted > replicas else None
        self._below = _kept(self._below, now, wanted, max) if wanted < replicas else None
        if self._above and now - self._above[0] >= self.policy.up_seconds:
            return self._settled(self._above[1])
        if self._below and now - self._below[0] >= self.policy.down_seconds:
            return self._settled(self._below[1])
        return replicas

    def _settled(self, replicas: int) -> int:
        """What comes next has to last anew."""
        self._above = self._below = None
        return replicas


def _kept(
    before: tuple[float, int] | None, now: float, wanted: int, nearest: Callable[[int, int], int]
) -> tuple[float, int]:
    return (now, wanted) if before is None else (before[0], nearest(before[1], wanted))


@dataclass(frozen=True, slots=True)
class Counted:
    """What a replica's metrics page says at one moment, in all of its models.

    Sums since its start: answered requests and the seconds they waited. Of now: requests that
    wait, and tokens in flight.
    """

    at: float = 0.0
    answered: float = 0.0
    waited_seconds: float = 0.0
    pending: float = 0.0
    tokens: float = 0.0


class LoadMeter:
    """The load of a replica, from what its metrics page says at one moment and at the next."""

    def __init__(self) -> None:
        self._last: Counted | None = None
        self._pending_since = 0.0

    def load(self, counted: Counted) -> ReplicaLoad:
        """The load since the call before.

        A wait is counted when its request is answered. So that a queue of long requests is seen
        before, those that wait count as Little's law has it, by the rate of answers; but for no
        longer than any of them have been seen to wait.
        """
        last, self._last = self._last, counted
        if last is None or not counted.pending:
            self._pending_since = counted.at
        if last is None:
            return ReplicaLoad(tokens=counted.tokens)
        answered = max(counted.answered - last.answered, 0.0)  # they fall with an unload
        waited = max(counted.waited_seconds - last.waited_seconds, 0.0)
        seconds = waited / answered if answered else 0.0
        if counted.pending:
            seen = counted.at - self._pending_since
            elapsed = counted.at - last.at
            expected = counted.pending * elapsed / answered if answered else seen
            seconds = max(seconds, min(expected, seen))
        return ReplicaLoad(seconds, counted.tokens)


def counted(at: float, sums: Mapping[str, float], cached_tokens: float) -> Counted:
    """What a metrics page says: sums over its series, by the names of samples, and at what time.

    Tokens in flight are those in KV caches, `cached_tokens`, and the prompts in front of them.
    """
    return Counted(
        at,
        sums.get("nv_inference_request_success", 0.0),
        sums.get("nv_inference_queue_duration_us", 0.0) / 1e6,
        sums.get("nv_inference_pending_request_count", 0.0),
        cached_tokens + sums.get("penstock_llm_queued_tokens", 0.0),
    )
