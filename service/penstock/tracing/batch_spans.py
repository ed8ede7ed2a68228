"""`BatchSpans`: the spans of batches, with links to the requests in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.tracing.packed_trace import PackedTimeline, PackedTrace
from penstock.tracing.spans import Span, model_version

PATIENCE = 5.0
"""Seconds that a batch waits for traces of its requests; some may be dropped, or not be sampled."""

_MOST = 1024


@dataclass(slots=True)
class _Waiting:
    span: Span
    epoch: int  # of the first trace; those of others differ by a little
    missing: int
    since: float
    links: list[tuple[int, int]] = field(default_factory=list)


class BatchSpans:
    """Collects the requests of batches from traces as they come. Knows no clock.

    A batch is a span of a trace of its own, since it has as many parents as requests; it links to
    them, and each of their compute spans links to it. An execution of one request has no such span.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, packed: PackedTrace, now: float) -> Iterator[Span]:
        """The spans of batches that are complete with this trace."""
        trace_id, _, _, epoch, _, timelines = packed
        for each in timelines:
            timeline = PackedTimeline(*each)
            if timeline.batch is not None and timeline.batch[4] > 1:
                yield from self._add(timeline, trace_id, epoch, now)

    def due(self, now: float) -> Iterator[Span]:
        """The spans of batches that have waited long enough, or are too many."""
        for key, waiting in list(self._waiting.items()):
            if now - waiting.since < PATIENCE and len(self._waiting) <= _MOST:
                return
            yield self._taken(key)

    def rest(self) -> Iterator[Span]:
        """The spans of all batches, complete or not."""
        for key in list(self._waiting):
            yield self._taken(key)

    def _add(
        self, timeline: PackedTimeline, trace_id: int, epoch: int, now: float
    ) -> Iterator[Span]:
        assert timeline.batch is not None
        batch_trace, span_id, begin, end, requests, rows, instance, traced = timeline.batch
        waiting = self._waiting.get(span_id)
        if waiting is None:
            span = Span(
                f"batch {timeline.model}",
                batch_trace,
                span_id,
                0,
                begin + epoch,
                max(begin, end) + epoch,
                attributes={
                    "triton.model_name": timeline.model,
                    "triton.model_version": model_version(timeline.version),
                    "penstock.batch.requests": requests,
                    "penstock.batch.rows": rows,
                    "penstock.instance": instance,
                },
            )
            waiting = self._waiting[span_id] = _Waiting(span, epoch, traced, now)
        waiting.span = waiting.span._replace(end=max(waiting.span.end, end + waiting.epoch))
        waiting.links.append((trace_id, timeline.span_id))
        waiting.missing -= 1
        if not waiting.missing:
            yield self._taken(span_id)

    def _taken(self, key: int) -> Span:
        waiting = self._waiting.pop(key)
        return waiting.span._replace(links=waiting.links)
