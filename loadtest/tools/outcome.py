"""What a load tool says it did, by kind of request, read from its own report."""

from __future__ import annotations

import json
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One kind of request; times in milliseconds, `rate` and `p99s` by second since the start."""

    name: str
    calls: int
    errors: int
    per_second: float
    p50: float
    p95: float
    p99: float
    rate: Points = ()
    p99s: Points = ()
    messages: Sequence[str] = field(default_factory=list)


def from_samples(
    name: str, samples: Sequence[tuple[float, float]], errors: Sequence[str], seconds: float
) -> Outcome:
    """The outcome of requests whose times, in seconds since the start, and durations are known."""
    by_second: defaultdict[int, list[float]] = defaultdict(list)
    for at, took in samples:
        by_second[int(at)].append(took)
    ranked = sorted(took for _, took in samples)
    whole = sorted(by_second)[:-1] or sorted(by_second)  # the last second is cut short
    return Outcome(
        name,
        len(samples),
        len(errors),
        len(samples) / seconds if seconds else 0.0,
        percentile(ranked, 0.5),
        percentile(ranked, 0.95),
        percentile(ranked, 0.99),
        [(second, float(len(by_second[second]))) for second in whole],
        [(second, percentile(sorted(by_second[second]), 0.99)) for second in whole],
        list(dict.fromkeys(errors))[:5],
    )


def percentile(ranked: Sequence[float], share: float) -> float:
    """The value below which this share of ranked ones lies; 0 without any."""
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))] if ranked else 0.0


@dataclass(frozen=True, slots=True)
class Counts:
    """What the server has counted: requests that went well, and that failed, of all models.

    A tool that looks at statuses alone takes a stream with an error inside for a good one.
    """

    success: int
    failed: int


def server_counts(http: str) -> Counts:
    """The counts of the server at this address of HTTP, until now."""
    with urllib.request.urlopen(f"http://{http}/v2/models/stats", timeout=30) as answer:
        models = json.load(answer)["model_stats"]
    return Counts(_sum(models, "success"), _sum(models, "fail"))


def _sum(models: Iterable[Any], name: str) -> int:
    return sum(int(each["inference_stats"].get(name, {}).get("count", 0)) for each in models)
