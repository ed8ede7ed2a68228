"""Two servers beside each other: measured in turns, and the ratios of their figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import Any

Figures = Mapping[str, Any]
Measure = Callable[[int], Figures | None]
"""Measures one of the servers, by its number; `None` if the user has had enough."""

# Student's t for 95 %, by degrees of freedom; beyond the list that of the normal distribution.
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
_NORMAL = 2.0
_SCALARS = ("throughput", "responses_per_second", "tokens_per_second", "goodput")
_PERCENTILES = ("p50", "p95", "p99")
_TIMES = {"latency": "latency_ms", "ttft": "ttft_ms", "gap": "gap_ms"}


def compare(measure: Measure, rounds: int) -> list[tuple[Figures, Figures]]:
    """Figures of A and B for each round; the order alternates: the second may find caches warm."""
    done: list[tuple[Figures, Figures]] = []
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        found: dict[int, Figures] = {}
        for side in order:
            figures = measure(side)
            if figures is None:
                return done
            found[side] = figures
        done.append((found[0], found[1]))
    return done


def comparison(pairs: Sequence[tuple[Figures, Figures]], names: Sequence[str]) -> dict[str, Any]:
    """Means of both servers and the ratio A / B of each figure, with where it lies for 95 %."""
    rounds = [{"a": plain(a), "b": plain(b)} for a, b in pairs]
    figures = {}
    for name in rounds[0]["a"] if rounds else ():
        values = [(each["a"].get(name), each["b"].get(name)) for each in rounds]
        both = [(a, b) for a, b in values if a and b and a > 0 and b > 0]
        if both:
            figures[name] = _ratio(both)
    return {"a": names[0], "b": names[1], "figures": figures, "rounds": rounds}


def plain(figures: Figures) -> dict[str, float]:
    """The figures of a measurement that are compared, by name."""
    found = {name: figures.get(name) for name in _SCALARS}
    for name, key in _TIMES.items():
        times = figures.get(key) or {}
        found |= {f"{name}_{share}_ms": times.get(share) for share in _PERCENTILES}
    found["server_cpu_us_per_request"] = figures["server"].get("cpu_us_per_request")
    return {name: value for name, value in found.items() if value is not None}


def _ratio(values: Sequence[tuple[float, float]]) -> dict[str, float | None]:
    """The geometric mean of A / B, whose inverse is that of B / A, and where it lies for 95 %."""
    logs = [log(a / b) for a, b in values]
    middle = fmean(logs)
    found: dict[str, float | None] = {
        "a": fmean(a for a, _ in values),
        "b": fmean(b for _, b in values),
        "ratio": exp(middle),
        "low": None,
        "high": None,
    }
    if len(logs) > 1:
        wide = (_T[len(logs) - 2] if len(logs) - 2 < len(_T) else _NORMAL) * stdev(logs)
        wide /= sqrt(len(logs))
        found |= {"low": exp(middle - wide), "high": exp(middle + wide)}
    return found
