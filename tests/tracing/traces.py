"""Finished traces for tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

from penstock.core.tensor import Tensor
from penstock.core.timeline import OnEnd, Timeline, Trace

BOTH = frozenset({"TIMESTAMPS", "TENSORS"})


def open_trace(
    levels: frozenset[str] = BOTH,
    numbers: Iterator[int] | None = None,
    on_end: OnEnd | None = None,
    sampled_by: object = None,
) -> Trace:
    return Trace(1, levels, None, numbers or count(1), on_end, sampled_by=sampled_by)


def model_request(
    parent: Timeline, model: str, *points: tuple[str, int], version: str = "1", id: str = ""
) -> Timeline:
    """The timeline of a request to a model, which has passed these points."""
    timeline = parent.nest(model, version, id, points[0][1] if points else 1)
    for name, at in points:
        timeline.mark(name, at)
    return timeline


def tensors(timeline: Timeline, activity: str, at: int, values: Mapping[str, Tensor]) -> None:
    """Tensors at one point."""
    timeline.add_tensors(activity, values)
    timeline.tensors = [
        each._replace(at=at) if each.activity == activity else each for each in timeline.tensors
    ]


def finish(trace: Trace) -> Trace:
    """All of it has ended."""
    for timeline in (*trace.timelines, trace.root):
        timeline.finish()
    return trace
