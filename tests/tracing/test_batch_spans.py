"""Spans of batches, and the links to the requests in them."""

from __future__ import annotations

import pytest

from penstock.core.timeline import Batch, Trace
from penstock.tracing.packed_trace import pack
from penstock.tracing.spans import PATIENCE, BatchSpans, Span
from tracing.export.traces import BEGIN, plain_trace


def _batch_of(count: int) -> tuple[Batch, list[Trace]]:
    batch = Batch(BEGIN, count, count, "plain_0")
    traces = [plain_trace(batch=batch) for _ in range(count)]
    batch.end = BEGIN + 300
    return batch, traces


def _add(batches: BatchSpans, traces: list[Trace], now: float = 0.0) -> list[Span]:
    return [span for trace in traces for span in batches.add(pack(trace), now)]


def test_batch_is_a_span_of_a_trace_of_its_own_with_links() -> None:
    batch, traces = _batch_of(3)
    (span,) = _add(BatchSpans(), traces)
    assert (span.name, span.trace_id, span.span_id) == (
        "batch plain",
        batch.trace_id,
        batch.span_id,
    )
    assert span.parent_id == 0
    assert span.end - span.begin == 300
    assert span.links == [(each.trace_id, each.timelines[0].span_id) for each in traces]
    assert span.attributes["penstock.batch.requests"] == 3


def test_batch_waits_for_all_of_its_traces() -> None:
    _, traces = _batch_of(3)
    assert not _add(BatchSpans(), traces[:2])


def test_single_requests_are_no_batch() -> None:
    batches = BatchSpans()
    assert not _add(batches, [plain_trace()])
    assert not batches


def test_batch_whose_traces_do_not_come_is_complete_after_a_while() -> None:
    _, traces = _batch_of(3)
    batches = BatchSpans()
    _add(batches, traces[:2], now=10.0)
    assert not list(batches.due(10.0 + PATIENCE - 0.1))
    (span,) = batches.due(10.0 + PATIENCE)
    assert len(span.links) == 2
    assert not batches


@pytest.mark.slow
def test_batches_that_wait_are_bounded() -> None:
    batches = BatchSpans()
    found = 0
    for _ in range(3000):
        _add(batches, _batch_of(2)[1][:1])
        found += len(list(batches.due(0.0)))
    assert len(batches) == 1024
    assert found == 3000 - 1024


def test_end_gives_all_that_wait() -> None:
    batches = BatchSpans()
    _add(batches, _batch_of(2)[1][:1])
    assert len(list(batches.rest())) == 1
