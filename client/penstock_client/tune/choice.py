"""Choosing among measurements: limits, objectives, standings, and the front that nothing beats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log
from typing import Any

from penstock_client.perf.gate import Limit, figure_at

Figures = Mapping[str, Any]
"""The figures of one load, as `penstock perf` has them, and the memory of the server."""

MODELS = "models"
"""The key of the figures of each model, where several were measured at the same time."""

_LEAST = 1e-9  # stands for 0, which has no logarithm


@dataclass(frozen=True, slots=True)
class Objective:
    """A figure that shall be large, or small with a negative weight; the first path that is there.

    Weights count relative gains: with equal ones twice the throughput makes up for twice the
    latency.
    """

    name: str
    paths: tuple[str, ...]
    weight: float = 1.0

    def value(self, figures: Figures) -> float | None:
        """The figure, if it was measured."""
        found = (figure_at(figures, path) for path in self.paths)
        return next((float(each) for each in found if isinstance(each, int | float)), None)


_LARGE = {
    "throughput": ("inferences_per_second",),
    "goodput": ("goodput",),
    # Responses stand for tokens where the server does not say how many tokens they hold.
    "tokens": ("tokens_per_second", "responses_per_second"),
}
_SMALL = {
    "p50": ("latency_ms.p50",),
    "p99": ("latency_ms.p99",),
    "mean": ("latency_ms.mean",),
    "ttft": ("ttft_ms.p99",),
    "itl": ("per_token_ms.p99",),
    "memory": ("memory_bytes",),
    "gpu-memory": ("gpu_memory_bytes",),
    "cpu": ("server.cpu_us_per_request",),
}
OBJECTIVES = (*_LARGE, *_SMALL)
"""Names of objectives."""


def objective(name: str, weight: float = 1.0) -> Objective:
    """The objective of a name in `OBJECTIVES`."""
    if name in _LARGE:
        return Objective(name, _LARGE[name], weight)
    return Objective(name, _SMALL[name], -weight)


@dataclass(frozen=True, slots=True)
class Aims:
    """The objectives of a search, and limits that a variant has to keep.

    Of several models at the same time each has a weight, 1 where none is named.
    """

    objectives: tuple[Objective, ...]
    limits: tuple[Limit, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, order=True)
class Standing:
    """The rating of a measurement: larger is better.

    `rank` is 2 where all limits are kept, 1 where one is broken, 0 where nothing was answered.
    `value` is the weighted sum of logarithms of objectives, or minus the sum of what limits are
    exceeded by, as shares of them.
    """

    rank: int
    value: float

    @property
    def kept(self) -> bool:
        """Whether all limits are kept."""
        return self.rank == 2


FAILED = Standing(0, 0.0)


def standing(figures: Figures, aims: Aims) -> Standing:
    """The standing of one load; of several models that of the worst rank, by weight."""
    if MODELS in figures:
        found = {name: standing(each, aims) for name, each in figures[MODELS].items()}
        rank = min(each.rank for each in found.values())
        values = (
            aims.weights.get(name, 1.0) * each.value
            for name, each in found.items()
            if each.rank == rank
        )
        return Standing(rank, sum(values))
    if not figures["requests"]:
        return FAILED
    if excess := sum(share for _, share in _broken(figures, aims.limits)):
        return Standing(1, -excess)
    aimed = [(each.weight, each.value(figures)) for each in aims.objectives]
    if any(value is None for _, value in aimed):
        return FAILED
    return Standing(2, sum(weight * log(max(value or 0.0, _LEAST)) for weight, value in aimed))


def best(points: Sequence[Figures], aims: Aims) -> int | None:
    """The number of the load with the highest standing; the first of equal ones."""
    standings = [standing(each, aims) for each in points]
    return max(range(len(points)), key=standings.__getitem__) if points else None


def best_standing(points: Iterable[Figures], aims: Aims) -> Standing:
    """The standing of a variant: that of its best load."""
    return max((standing(each, aims) for each in points), default=FAILED)


def broken(figures: Figures, limits: Sequence[Limit]) -> list[str]:
    """A few words for each limit that is not kept, and for requests that failed."""
    if MODELS not in figures:
        return [text for text, _ in _broken(figures, limits)]
    each = figures[MODELS].items()
    return [f"{name}: {text}" for name, own in each for text, _ in _broken(own, limits)]


def _broken(figures: Figures, limits: Sequence[Limit]) -> Iterator[tuple[str, float]]:
    """Limits that are not kept, and the excess as a share of each."""
    if failed := figures["failed"]:
        yield f"{failed} requests failed", failed / (failed + figures["requests"])
    for limit in limits:
        value = figure_at(figures, limit.figure)
        if not isinstance(value, int | float):
            yield f"there is no {limit.figure}", 1e9
            continue
        if limit.largest is not None and value > limit.largest:
            text = f"{limit.figure} {value:.6g} is over {limit.largest:g}"
            yield text, _share(value - limit.largest, limit.largest)
        if limit.least is not None and value < limit.least:
            text = f"{limit.figure} {value:.6g} is under {limit.least:g}"
            yield text, _share(limit.least - value, limit.least)


def _share(excess: float, limit: float) -> float:
    return excess / limit if limit else excess


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """The numbers of the points that no other beats, by x.

    A point beats another with an x as large and a y as small, one of them better; of equal points
    the first counts.
    """
    order = sorted(range(len(points)), key=lambda n: (-points[n][0], points[n][1], n))
    found, lowest = [], inf
    for number in order:
        if points[number][1] < lowest:
            found.append(number)
            lowest = points[number][1]
    return found[::-1]
