"""Answers of the HTTP endpoint as values."""

from __future__ import annotations

from typing import Any

from harness import recorded
from penstock_client.reading.counters import BatchCounts, CacheCounts, Durations, ModelKey
from penstock_client.reading.kserve import model_statistics
from penstock_client.reading.views import ModelEntry, ServerMetadata, entries_of, server_of

KEY = ModelKey("m", "1")


def _statistics(**entry: Any) -> Any:
    return {"model_stats": [{"name": "m", "version": "1", **entry}]}


def test_counts_and_durations_are_read() -> None:
    counters, batches = model_statistics(
        _statistics(
            inference_count=9,
            execution_count=3,
            inference_stats={
                "success": {"count": 7, "ns": 2_000_000_000},
                "fail": {"count": 1, "ns": 5},
                "queue": {"count": 7, "ns": 500_000_000},
                "cache_hit": {"count": 4, "ns": 1},
            },
            batch_stats=[{"batch_size": 3, "compute_infer": {"count": 3, "ns": 1_000_000_000}}],
        )
    )
    found = counters[KEY]
    assert (found.success, found.inferences, found.executions) == (7, 9, 3)
    assert found.durations == Durations(request=2.0, queue=0.5)
    assert (found.failures, found.cache) == ({"all": 1}, CacheCounts(4, 0))
    assert batches[KEY] == {3: BatchCounts(3, compute_infer=1.0)}


def test_a_model_that_has_done_nothing_may_leave_out_everything() -> None:
    counters, batches = model_statistics(_statistics())
    assert counters[KEY].success == 0
    assert counters[KEY].cache is None
    assert batches[KEY] == {}


def test_the_index_gives_states_and_reasons() -> None:
    index = [
        {"name": "m", "version": "1", "state": "READY"},
        {"name": "n", "version": "1", "state": "UNAVAILABLE", "reason": "no file"},
        {"name": "never"},
    ]
    assert entries_of(index) == [
        ModelEntry("m", "1", "READY"),
        ModelEntry("n", "1", "UNAVAILABLE", "no file"),
        ModelEntry("never", ""),
    ]


def test_a_server_is_named_with_its_version() -> None:
    told = {"name": "triton", "version": "2.51.0", "extensions": ["statistics"]}
    assert server_of(told) == ServerMetadata("triton", "2.51.0", ("statistics",))
    assert server_of({}) == ServerMetadata("", "", ())


@recorded.needs_answers
def test_statistics_of_triton_are_read() -> None:
    reply = recorded.answers("statistics.json")["http repeat_int32"]["reply"]
    counters, batches = model_statistics(reply)
    key = ModelKey("repeat_int32", "1")
    assert counters[key].success == 4
    assert batches[key][1].executions == 4
