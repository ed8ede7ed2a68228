"""Outcomes of a load tool by kind of request, read from its own report."""

from __future__ import annotations

import json
import re
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError

from loadtest.tools.programs import ToolError

_FAILURES = re.compile(r'^nv_inference_request_failure\{.*reason="(\w+)".*\} (\d+)', re.MULTILINE)
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
    """Counters of the server: requests that went well, and that failed, of all models.

    A tool that looks at statuses alone takes a stream with an error inside for a good one.
    """

    success: int
    failed: int


def server_counts(http: str) -> Counts:
    """The counts of the server at this address of HTTP, until now; raises `ToolError`."""
    try:
        models = json.loads(_page(f"http://{http}/v2/models/stats"))["model_stats"]
        return Counts(_sum(models, "success"), _sum(models, "fail"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolError(f"the server at {http} answers without statistics of models") from error


def failed_by_reason(metrics: str) -> dict[str, int]:
    """Requests that a server has failed, by reason, of its metrics page; raises `ToolError`."""
    found: dict[str, int] = {}
    for reason, number in _FAILURES.findall(_page(metrics)):
        found[reason] = found.get(reason, 0) + int(number)
    return found


def _page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return str(answer.read().decode())
    except (OSError, HTTPException, UnicodeError) as error:
        reason = error if isinstance(error, HTTPError) else getattr(error, "reason", error)
        raise ToolError(f"the server does not answer {url}: {reason}") from error


def _sum(models: Iterable[Any], name: str) -> int:
    return sum(int(each["inference_stats"].get(name, {}).get("count", 0)) for each in models)
