"""One measurement: a load, its windows until they agree, and its results."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from penstock_client.perf.load.job import FIRST_ERROR, OK, Chunk
from penstock_client.perf.load.plan import Limits, Point, Traffic, jobs
from penstock_client.perf.load.processes import Processes, processes
from penstock_client.perf.load.results import Collected, Results
from penstock_client.perf.server_side import Observer, Snapshot

_AGREEING = 3
"""Windows that have to agree for a load to be stable."""
_TICK = 0.1


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a measurement: seconds of it, requests answered and failed, and the last rate.

    `waiting` requests are due and not sent.
    """

    point: Point
    seconds: float
    of: float
    answered: int
    failed: int
    in_flight: int
    waiting: int
    rate: float


Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """The results of one measurement between `begin` and `end`.

    `results` are all requests of the load, the warm-up's too. `stable` says whether the last
    windows agreed, `None` if there were too few. `problems` are faults of the load as a whole.
    `busy` is the share of a core that the busiest process of the load used, `cpu` the CPU time of
    all.
    """

    point: Point
    begin: float
    end: float
    results: Results
    before: Snapshot
    after: Snapshot
    cpu: float
    busy: float
    processes: int
    stable: bool | None
    problems: tuple[str, ...]
    interrupted: bool = False


def measure(
    traffic: Traffic, point: Point, limits: Limits, observer: Observer, report: Report
) -> Measured:
    """Put a load on, to its end or Ctrl-C; raises `PerfError` if it cannot begin."""
    parts = jobs(traffic, point, limits)
    with processes(len(parts)) as running:
        measurement = _Measurement(running, point, limits, observer, report)
        start = running.begin(parts)
        interrupted = False
        try:
            measurement.follow(start)
        except KeyboardInterrupt:
            interrupted = True
            measurement.interrupt()
        return measurement.measured(len(parts), interrupted)


class _Measurement:
    def __init__(
        self, running: Processes, point: Point, limits: Limits, observer: Observer, report: Report
    ) -> None:
        self._running = running
        self._point = point
        self._limits = limits
        self._observer = observer
        self._report = report
        self._collected = Collected()
        self._snapshots: list[Snapshot] = []
        self._chunks: dict[int, list[Chunk]] = {}
        self._windows: list[tuple[float, float]] = []  # requests a second and their seconds
        self._answered = self._failed = 0
        self._start = self._bound = 0.0
        self._end = 0.0
        self._stable: bool | None = None

    def follow(self, start: float) -> None:
        """Collect what processes tell until all have ended, and look at the windows."""
        limits = self._limits
        self._start = start
        window = limits.window if limits.stability else limits.duration
        planned = start + limits.seconds
        self._bound = start + limits.warmup
        if limits.requests or not limits.warmup:
            self._snapshots.append(replace(self._observer.snapshot(), at=start))
            self._bound = inf if limits.requests else start + window
        for told in self._running.chunks(_TICK):
            if told is not None:
                self._add(*told)
            now = time.perf_counter()
            # A beginning that is seen behind the end would leave nothing between them.
            latest = planned + _TICK if self._snapshots else planned
            if self._bound <= now < latest and not self._end:
                self._at_bound()
                self._bound += window
        self._finish(planned)

    def interrupt(self) -> None:
        """Take what there is when the user has had enough."""
        self._running.stop()
        now = time.perf_counter()
        for told in self._running.chunks(_TICK):
            if told is not None:
                self._add(*told)
            if time.perf_counter() > now + self._limits.drain + 1.0:
                break
        self._finish(now)

    def measured(self, count: int, interrupted: bool) -> Measured:
        """The results of the whole measurement."""
        used, busy = self._client_cpu()
        before, after = self._span()
        return Measured(
            point=self._point,
            begin=before.at,
            end=min(after.at, self._end),
            results=self._collected.results(),
            before=before,
            after=after,
            cpu=used,
            busy=busy,
            processes=count,
            stable=self._stable,
            problems=tuple(dict.fromkeys(self._running.problems)),
            interrupted=interrupted,
        )

    def _add(self, process: int, chunk: Chunk) -> None:
        counts = self._collected.add(process, chunk)
        chunks = self._chunks.setdefault(process, [])
        answered = int(np.count_nonzero(counts[:, 1] == OK))
        self._answered += answered
        self._failed += int(np.count_nonzero(counts[:, 1] >= FIRST_ERROR))
        seconds = chunk.at - (chunks[-1].at if chunks else self._start)
        chunks.append(chunk)
        last = [each[-1] for each in self._chunks.values()]
        self._report(
            Progress(
                self._point,
                chunk.at - self._start,
                self._limits.seconds,
                self._answered,
                self._failed,
                sum(each.in_flight for each in last),
                sum(each.waiting for each in last),
                answered * len(self._chunks) / seconds if seconds > 0 else 0.0,
            )
        )

    def _at_bound(self) -> None:
        """The warm-up or a window has ended."""
        self._snapshots.append(self._observer.snapshot())
        if len(self._snapshots) > 1 and self._limits.stability:
            begin, end = self._snapshots[-2].at, self._snapshots[-1].at
            self._windows.append(self._window(begin, end))
            self._stable = _agree(self._windows, self._limits.stability)
            if self._stable:
                self._end = end
                self._running.stop()

    def _window(self, begin: float, end: float) -> tuple[float, float]:
        results = self._collected.results()
        inside = (results.end >= begin) & (results.end < end) & results.answered
        latencies = (results.end - results.start)[inside]
        return len(latencies) / (end - begin), float(np.mean(latencies)) if len(latencies) else 0.0

    def _finish(self, planned: float) -> None:
        """The end of what is measured: as planned, or where the load ended before."""
        last = max((chunks[-1].at for chunks in self._chunks.values()), default=self._start)
        self._end = self._end or min(planned, last)
        if not self._snapshots:  # nor is there a growth of the server's counters
            self._snapshots += (Snapshot(self._start), Snapshot(time.perf_counter()))
        if len(self._snapshots) < 2:
            self._snapshots.append(self._observer.snapshot())

    def _span(self) -> tuple[Snapshot, Snapshot]:
        """The snapshots around what counts: all of it, or the windows that agreed."""
        if self._limits.stability and len(self._snapshots) > _AGREEING:
            return self._snapshots[-1 - _AGREEING], self._snapshots[-1]
        return self._snapshots[0], self._snapshots[-1]

    def _client_cpu(self) -> tuple[float, float]:
        """CPU time of the load in what is measured, and the busiest process's share of a core."""
        before, after = self._span()
        used, busy = 0.0, 0.0
        for chunks in self._chunks.values():
            inside = [each for each in chunks if before.at <= each.at <= after.at + 2 * _TICK]
            if len(inside) < 2:
                inside = chunks
            if len(inside) > 1 and inside[-1].at > inside[0].at:
                share = (inside[-1].cpu - inside[0].cpu) / (inside[-1].at - inside[0].at)
                used += share * (after.at - before.at)
                busy = max(busy, share)
        return used, busy


def _agree(windows: list[tuple[float, float]], percent: float) -> bool | None:
    """Whether the last windows lie close enough to their mean, in requests and in latency."""
    if len(windows) < _AGREEING:
        return None
    for values in zip(*windows[-_AGREEING:], strict=True):
        middle = sum(values) / _AGREEING
        if not middle or any(abs(value - middle) > middle * percent / 100 for value in values):
            return False
    return True
