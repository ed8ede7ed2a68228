"""Figures of a measurement: rates, percentiles, goodput, and the bottleneck."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from penstock_client.perf.load.results import Floats, Mask, Results
from penstock_client.perf.measure import Measured
from penstock_client.perf.server_side import machine_busy, server_side

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
_BUSY = 0.9
"""A share of a core from which on a process of the load may be what is slow."""
_FULL = 0.97
"""Share of the machine's CPU time, 0 to 1, from which on processes wait for a core."""
_LATE = 0.01  # seconds; a delay in sending that most users would call one
_REACHED = 0.95
_WINDOWS = 20


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit that a request has to keep to count for goodput, in milliseconds or tokens a second.

    Metrics are named as genai-perf names them.
    """

    metric: str
    limit: float


TTFT, GAP, LATENCY, PER_USER = (
    "time_to_first_token",
    "inter_token_latency",
    "request_latency",
    "output_token_throughput_per_user",
)
GOALS = {"ttft": TTFT, "itl": GAP, "latency": LATENCY, "tokens_per_second": PER_USER}
"""Short names of metrics that goodput may be limited by."""


@dataclass(frozen=True, slots=True, eq=False)
class _Times:
    """Seconds of each answered request; `per_token` is that of tokens after the first, or of
    responses where the server does not count tokens."""

    latency: Floats
    first: Floats
    per_token: Floats


def summarize(
    measured: Measured, *, rows: int, streamed: bool, local: bool, goals: Sequence[Goal] = ()
) -> dict[str, Any]:
    """The figures of one measurement; `rows` are those of a request, `local` is a server here."""
    seconds = max(measured.end - measured.begin, 1e-9)
    everything, point = measured.results, measured.point
    ended = (everything.end >= measured.begin) & (everything.end <= measured.end)
    asked = (everything.due >= measured.begin) & (everything.due < measured.end)
    gaps = (everything.gap_times >= measured.begin) & (everything.gap_times <= measured.end)
    inside = everything.chosen(ended & ~everything.cut_off, gaps)
    # Latency in an open loop is that of what was due, however late it was answered.
    timed = everything.chosen(asked, gaps) if point.open else inside
    answered = int(np.count_nonzero(inside.answered))
    times = _times(timed, timed.answered, point.open)
    found: dict[str, Any] = {
        "load": _load(measured),
        "seconds": seconds,
        "requests": answered,
        "failed": int(np.count_nonzero(inside.failed)),
        "errors": inside.error_counts(),
        "cut_off": int(np.count_nonzero(everything.cut_off)),
        "throughput": answered / seconds,
        "inferences_per_second": answered * max(rows, 1) / seconds,
        "latency_ms": distribution(times.latency),
    }
    if tokens := int(inside.tokens[inside.answered].sum()):
        found |= {"tokens_per_second": tokens / seconds, "tokens_per_request": tokens / answered}
    if streamed:
        found |= _streaming(inside, timed, times, seconds)
    if goals:
        found["goodput"] = _good(times, goals) / seconds
        found["goals"] = {goal.metric: goal.limit for goal in goals}
    if point.open:
        found["offered"] = _offered(asked, seconds)
        found["send_delay_ms"] = distribution((timed.start - timed.due)[timed.start > 0])
    found["curves"] = {
        "latency_ms": _curve(times.latency),
        "ttft_ms": _curve(times.first) if streamed else [],
        "gap_ms": _curve(timed.gaps),
    }
    found["windows"] = _windows(everything, measured)
    found["stable"] = measured.stable
    found["client"] = _client(measured, found, local)
    found["server"] = server_side(measured.before, measured.after, answered)
    found["problems"] = list(measured.problems)
    return found


def distribution(seconds: Floats) -> dict[str, float] | None:
    """Mean, deviation, extremes and percentiles in milliseconds; `None` without a value."""
    if not len(seconds):
        return None
    values = seconds * 1e3
    found = {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "min": float(values.min()),
        "max": float(values.max()),
    }
    ranked = np.percentile(values, PERCENTILES).tolist()
    return found | {f"p{name:g}": value for name, value in zip(PERCENTILES, ranked, strict=True)}


def _curve(seconds: Floats) -> list[float]:
    """The values in milliseconds up to which 0, 1, ... 100 percent lie."""
    if not len(seconds):
        return []
    found: list[float] = np.percentile(seconds * 1e3, range(101)).tolist()
    return found


def is_short(figures: Mapping[str, Any]) -> bool:
    """Whether fewer requests were answered than an open loop asked for."""
    offered = figures.get("offered")
    done = figures["throughput"] + figures["failed"] / figures["seconds"]
    return offered is not None and done < _REACHED * offered


def is_unanswered(figures: Mapping[str, Any]) -> bool:
    """Whether a closed loop ended before its first answer: it has measured nothing."""
    return "offered" not in figures and not figures["requests"] and not figures["failed"]


def _load(measured: Measured) -> dict[str, Any]:
    point = measured.point
    found: dict[str, Any] = {"label": point.label}
    if point.concurrency:
        return {**found, "concurrency": point.concurrency}
    if point.rate:
        kind = "poisson" if point.poisson else "constant"
        return {**found, "rate": point.rate, "distribution": kind}
    return found


def _times(results: Results, which: Mask, from_due: bool) -> _Times:
    """Latencies; in an open loop from when a request was due: waiting to be sent counts, too."""
    begin = (results.due if from_due else results.start)[which]
    first, last = results.first[which], results.last[which]
    tokens = np.maximum(results.tokens[which], results.responses[which]).astype(np.float64)
    several = tokens > 1
    per_token = np.full(len(first), np.nan)
    per_token[several] = (last - first)[several] / (tokens - 1)[several]
    return _Times(results.end[which] - begin, first - begin, per_token)


def _streaming(inside: Results, timed: Results, times: _Times, seconds: float) -> dict[str, Any]:
    answered = inside.answered
    count = max(1, int(np.count_nonzero(answered)))
    responses = int(inside.responses[answered].sum())
    return {
        "responses_per_second": responses / seconds,
        "responses_per_request": responses / count,
        "ttft_ms": distribution(times.first),
        "gap_ms": distribution(timed.gaps),
        "per_token_ms": distribution(times.per_token[~np.isnan(times.per_token)]),
    }


def _good(times: _Times, goals: Sequence[Goal]) -> int:
    """The number of requests that keep all limits; one of one token has no time between tokens."""
    good = np.ones(len(times.latency), np.bool_)
    for goal in goals:
        if goal.metric == PER_USER:
            good &= np.isnan(times.per_token) | (times.per_token <= 1 / goal.limit)
            continue
        values = {LATENCY: times.latency, TTFT: times.first, GAP: times.per_token}[goal.metric]
        good &= np.isnan(values) | (values * 1e3 <= goal.limit)
    return int(np.count_nonzero(good))


def _offered(asked: Mask, seconds: float) -> float:
    return int(np.count_nonzero(asked)) / seconds


def _windows(results: Results, measured: Measured) -> list[dict[str, Any]]:
    """Rates and latencies by equal parts of the measurement, for its course over time."""
    bounds = np.linspace(measured.begin, measured.end, _WINDOWS + 1)
    length = float(bounds[1] - bounds[0])
    answered, failed = results.answered, results.failed
    latency = results.end - (results.due if measured.point.open else results.start)
    found = []
    for begin, end in pairwise(bounds.tolist()):
        within = (results.end >= begin) & (results.end < end)
        values = latency[within & answered] * 1e3
        some = len(values) > 0
        found.append(
            {
                "at": begin - measured.begin,
                "throughput": len(values) / length if length else 0.0,
                "failed": int(np.count_nonzero(within & failed)),
                "latency_p50_ms": float(np.percentile(values, 50)) if some else None,
                "latency_p99_ms": float(np.percentile(values, 99)) if some else None,
            }
        )
    return found


def _client(measured: Measured, figures: Mapping[str, Any], local: bool) -> dict[str, Any]:
    """CPU time of the load itself, and reasons why it may be the bottleneck."""
    done = figures["requests"] + figures["failed"]
    machine = machine_busy(measured.before, measured.after)
    late = (figures.get("send_delay_ms") or {}).get("p99", 0.0) / 1e3
    reasons = []
    if measured.busy > _BUSY:
        reasons.append(
            f"a process of the load was busy {measured.busy:.0%} of the time: use more --processes"
        )
    if local and machine > _FULL:
        reasons.append(
            f"load and server share this machine, whose CPUs were busy {machine:.0%} of the time"
        )
    elif late > _LATE:
        reasons.append(f"1 % of the requests were sent {late * 1e3:.0f} ms late or later")
    return {
        "processes": measured.processes,
        "cpu_us_per_request": measured.cpu / done * 1e6 if done else None,
        "busy": measured.busy,
        "machine_busy": machine,
        "bottleneck": "; ".join(reasons),
    }
