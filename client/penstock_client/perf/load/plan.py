"""A load as it was asked for, and its division among processes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, cycle, islice

from penstock_client.perf.load.job import ClosedLoop, Job, OpenLoop, Payload, Sequences
from penstock_client.perf.wire.endpoint import Endpoint

_SHARING = 6  # requests at a time on a connection
_MOST_CONNECTIONS = 4
_NO_END = 7 * 86400.0  # seconds of a load that ends by the number of its requests


@dataclass(frozen=True, slots=True)
class Point:
    """One strength of a load: so many requests at a time, so many a second, or given times."""

    concurrency: int = 0
    rate: float = 0.0
    poisson: bool = False
    gaps: tuple[float, ...] = ()
    times: tuple[float, ...] = ()

    @property
    def open(self) -> bool:
        """Whether requests are sent at times that do not depend on answers."""
        return not self.concurrency

    @property
    def label(self) -> str:
        """A few words for tables."""
        if self.concurrency:
            return f"concurrency {self.concurrency}"
        if self.times:
            return f"trace of {len(self.times)}"
        if self.gaps:
            return f"{len(self.gaps)} intervals"
        return f"rate {self.rate:g}{' poisson' if self.poisson else ''}"


@dataclass(frozen=True, slots=True)
class Traffic:
    """The requests for one server, whatever the strength of the load."""

    endpoint: Endpoint
    http: bool
    streamed: bool
    payloads: tuple[Payload, ...]
    sequences: Sequences | None = None
    slots: int = 0  # sequences that are under way at a time


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a load: seconds, requests, processes and connections.

    `duration` is what is measured, after `warmup`; with `requests` a load ends with these instead.
    `connections` are those of gRPC; 0 is one for each six requests at a time, as Triton's clients
    share them, and at most 4. With `stability`, in percent, windows of `window` seconds are
    measured until three of them agree, at most `most_windows`.
    """

    duration: float = 10.0
    warmup: float = 1.0
    requests: int = 0
    stability: float = 0.0
    window: float = 5.0
    most_windows: int = 10
    drain: float = 10.0
    timeout: float = 0.0
    processes: int = 1
    connections: int = 0
    most_in_flight: int = 1024
    seed: int = 0

    @property
    def seconds(self) -> float:
        """The most seconds in which requests are sent."""
        if self.requests:
            return _NO_END
        measured = self.window * self.most_windows if self.stability else self.duration
        return self.warmup + measured


def jobs(traffic: Traffic, point: Point, limits: Limits) -> list[Job]:
    """One job for each process, at most as many as there are slots or requests."""
    wanted = limits.processes
    if not point.open or traffic.slots:
        wanted = min(wanted, traffic.slots or point.concurrency)
    if limits.requests:
        wanted = min(wanted, limits.requests)
    return [_job(traffic, point, limits, number, wanted) for number in range(wanted)]


def _job(traffic: Traffic, point: Point, limits: Limits, number: int, count: int) -> Job:
    shape = _shape(traffic, point, limits, number, count)
    in_flight = shape.slots if isinstance(shape, ClosedLoop) else shape.most_in_flight
    # One call at a time on a connection of HTTP; of gRPC's, as many as the server allows.
    connections = (
        in_flight if traffic.http else min(in_flight, _connections(limits, in_flight, count))
    )
    return Job(
        endpoint=traffic.endpoint,
        http=traffic.http,
        streamed=traffic.streamed,
        payloads=traffic.payloads,
        shape=shape,
        connections=max(1, connections),
        seconds=_seconds(point, limits),
        requests=_share(limits.requests, number, count),
        drain=limits.drain if point.open or limits.requests else 0.0,
        timeout=limits.timeout,
        turn=number,
        stride=count,
        sequences=traffic.sequences,
    )


def _connections(limits: Limits, in_flight: int, count: int) -> int:
    """The gRPC connections of one process of several."""
    if limits.connections:
        return _share(limits.connections, 0, count)
    return min(-(-in_flight // _SHARING), _share(_MOST_CONNECTIONS, 0, count))


def _seconds(point: Point, limits: Limits) -> float:
    if point.times and not limits.requests:
        return min(point.times[-1] + 1e-3, limits.seconds) if limits.duration else point.times[-1]
    return limits.seconds


def _shape(
    traffic: Traffic, point: Point, limits: Limits, number: int, count: int
) -> ClosedLoop | OpenLoop:
    if point.concurrency:
        return ClosedLoop(_share(traffic.slots or point.concurrency, number, count))
    times, period = _times(point, number, count)
    return OpenLoop(
        rate=point.rate / count,
        poisson=point.poisson,
        phase=number / count,
        seed=limits.seed * 1000 + number,
        times=times,
        period=period,
        most_in_flight=_share(traffic.slots or limits.most_in_flight, number, count),
    )


def _times(point: Point, number: int, count: int) -> tuple[tuple[float, ...], float]:
    """The times of one process of several, and after how long they repeat, 0 if they do not."""
    if not point.gaps:
        return point.times[number::count], 0.0
    # As many rounds of the gaps as it takes until the processes have the same turns again.
    times = list(accumulate(islice(cycle(point.gaps), len(point.gaps) * count)))
    return tuple(times[number::count]), times[-1]


def _share(total: int, number: int, count: int) -> int:
    """The part of one process: those with low numbers take what is left over."""
    whole, rest = divmod(total, count)
    return whole + (number < rest)
