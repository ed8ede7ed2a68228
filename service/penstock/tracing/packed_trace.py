"""A finished trace as plain values, which `marshal` writes, for the process that exports it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.core.errors import InferenceError
from penstock.core.timeline import Batch, Fact, Timeline, Trace

PackedBatch = tuple[int, int, int, int, int, int, str, int]
"""Trace and span id, begin, end, requests, rows, instance, requests that are traced."""

PackedTrace = tuple[int, str, int, int, int, list[tuple[Any, ...]]]
"""Trace id, state, id of the caller's span or 0, the epoch on the monotonic clock, timelines that
were left out, and the timelines as `PackedTimeline` names their parts: the endpoint's first.
"""


class PackedTimeline(NamedTuple):
    """The parts of a timeline; `error` is the class of the error and its text."""

    span_id: int
    parent_id: int
    number: int
    parent_number: int
    model: str
    version: str
    request_id: str
    begin: int
    end: int
    error: tuple[str, str] | None
    marks: Sequence[tuple[str, int]]
    facts: dict[str, Fact]
    spans: Sequence[tuple[Any, ...]]
    batch: PackedBatch | None


def pack(trace: Trace) -> PackedTrace:
    """The parts of a finished trace that spans are made of, as plain values."""
    caller = trace.caller
    timelines = [_pack_timeline(trace.root)]
    timelines += map(_pack_timeline, trace.timelines)
    return (
        trace.trace_id,
        trace.state,
        0 if caller is None else caller.span_id,
        time.time_ns() - time.monotonic_ns(),
        trace.dropped,
        timelines,
    )


def _pack_timeline(timeline: Timeline) -> tuple[Any, ...]:
    parent, batch, error = timeline.parent, timeline.batch, timeline.error
    return (
        timeline.span_id,
        0 if parent is None else parent.span_id,
        timeline.number,
        0 if parent is None else parent.number,
        timeline.model,
        timeline.version,
        timeline.request_id,
        timeline.begin,
        timeline.end,
        None if error is None else _pack_error(error),
        timeline.marks,
        timeline.facts,
        timeline.spans,
        None if batch is None else _pack_batch(batch),
    )


def _pack_error(error: InferenceError) -> tuple[str, str]:
    return type(error).__name__, str(error)


def _pack_batch(batch: Batch) -> PackedBatch:
    return (
        batch.trace_id,
        batch.span_id,
        batch.begin,
        batch.end,
        batch.requests,
        batch.rows,
        batch.instance,
        batch.traced,
    )
