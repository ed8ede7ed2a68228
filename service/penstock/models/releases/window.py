"""`TargetWindow`: what a target of an alias answered lately, and whether a guard allows that.

`LatencySketch` counts times in buckets that grow by 2 %: a percentile is right to within that.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, exp, log

from penstock.models.releases.alias import Cause, Guard

_GROWTH = 0.02
_PARTS = 20
"""Parts of a window, the oldest of which goes as a whole."""
_SHORTEST = 1e-7
"""Seconds; shorter times are alike."""


class LatencySketch:
    """Counts of times, in seconds."""

    __slots__ = ("_counts", "count", "total")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.count = 0
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count a time."""
        self._counts[ceil(log(max(seconds, _SHORTEST)) / _GROWTH)] += 1
        self.count += 1
        self.total += seconds

    def merge(self, other: LatencySketch) -> None:
        """Add the counts of another one."""
        self._counts.update(other._counts)
        self.count += other.count
        self.total += other.total

    def quantile(self, share: float) -> float:
        """The time that `share`, 0 to 1, of all did not exceed; 0 without any.

        It is the upper bound of its bucket, at most 2 % too long.
        """
        wanted = max(1, ceil(share * self.count))
        for bucket in sorted(self._counts):
            wanted -= self._counts[bucket]
            if wanted <= 0:
                return exp(bucket * _GROWTH)
        return 0.0

    def buckets(self, bounds: Sequence[float]) -> tuple[tuple[float, int], ...]:
        """Each bound in seconds, the last of which is infinite, and how many did not exceed it."""
        found = [0] * len(bounds)
        for bucket, count in self._counts.items():
            time = exp((bucket - 0.5) * _GROWTH)
            for place, bound in enumerate(bounds):
                if time <= bound:
                    found[place] += count
        return tuple(zip(bounds, found, strict=True))


@dataclass(slots=True)
class Answers:
    """Requests, those of them that failed, and the latencies of the others."""

    requests: int = 0
    failed: int = 0
    latencies: LatencySketch = field(default_factory=LatencySketch)

    def add(self, seconds: float, *, failed: bool) -> None:
        """Count a request."""
        self.requests += 1
        if failed:
            self.failed += 1
        else:
            self.latencies.add(seconds)

    @classmethod
    def sum(cls, several: Iterable[Answers]) -> Answers:
        """The counts of all together."""
        whole = cls()
        for one in several:
            whole.requests += one.requests
            whole.failed += one.failed
            whole.latencies.merge(one.latencies)
        return whole


class TargetWindow:
    """Answers of the last `seconds`, to within a twentieth, and the counts of all."""

    def __init__(self, seconds: float) -> None:
        self._part = seconds / _PARTS
        self._parts: deque[tuple[int, Answers]] = deque()
        self.seconds = seconds
        self.requests = 0
        self.failed = 0

    def add(self, now: float, seconds: float, *, failed: bool) -> None:
        """Count a request that has ended `now` and took so many seconds."""
        self.requests += 1
        self.failed += failed
        number = int(now / self._part)
        parts = self._parts
        if not parts or parts[-1][0] < number:
            parts.append((number, Answers()))
            self._forget(number)
        parts[-1][1].add(seconds, failed=failed)

    def answers(self, now: float) -> Answers:
        """What is in the window now."""
        self._forget(int(now / self._part))
        return Answers.sum(answers for _, answers in self._parts)

    def clear(self) -> None:
        """Begin anew; the counts of all stay."""
        self._parts.clear()

    def _forget(self, number: int) -> None:
        while self._parts and self._parts[0][0] <= number - _PARTS:
            self._parts.popleft()


LEAST_FOR_P99 = 100
"""Answers of which a 99th percentile tells anything."""
_P99 = 0.99


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a target is to have no requests any more."""

    cause: Cause
    text: str


def p99_of(answers: Answers) -> float:
    """The 99th percentile of latencies in seconds; 0 where there are too few."""
    enough = answers.latencies.count >= LEAST_FOR_P99
    return answers.latencies.quantile(_P99) if enough else 0.0


def least_judged(guard: Guard) -> int:
    """Requests of a target of which a guard can tell whether all is well."""
    return max(guard.min_requests, LEAST_FOR_P99 if guard.max_p99_ratio else 0)


def judged(name: str, guard: Guard, answers: Answers, base: str, base_p99: float) -> Verdict | None:
    """What is wrong with the target `name`; `None` while nothing is.

    `base_p99` is that of the target `base`, to which the alias would go back; 0 if it is not known.
    """
    if answers.requests < max(1, guard.min_requests):
        return None
    within = f"within {guard.window:g} s"
    if answers.failed > guard.max_error_rate * answers.requests:
        return Verdict(
            Cause.ERRORS,
            f"'{name}' failed {answers.failed} of {answers.requests} requests {within},"
            f" more than {guard.max_error_rate:.2%}",
        )
    p99 = p99_of(answers)
    if guard.max_p99_ratio and base_p99 and p99 > guard.max_p99_ratio * base_p99:
        return Verdict(
            Cause.LATENCY,
            f"'{name}' took {_milliseconds(p99)} at the 99th percentile {within},"
            f" {p99 / base_p99:.2f} times the {_milliseconds(base_p99)} of '{base}',"
            f" more than {guard.max_p99_ratio:g}",
        )
    return None


def _milliseconds(seconds: float) -> str:
    """Three digits, or all before the point, for people."""
    number = seconds * 1e3
    return f"{number:.3g} ms" if number < 1000 else f"{number:,.0f} ms"
