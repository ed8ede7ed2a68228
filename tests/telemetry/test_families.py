"""Families of the metrics page, each with its name, its words and its numbers."""

from __future__ import annotations

import asyncio
from collections import Counter
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.inflight.statistics import FailureReason, Phase, Statistics
from penstock.metrics.exposition import render
from penstock.models.remote.remote_repositories import RemoteRepositories
from penstock.models.serving.answers import ModelStatistics
from penstock.telemetry.families import (
    flow_families,
    load_times,
    model_families,
    queue_families,
)
from penstock.telemetry.server_families import access_families, repository_families, trace_families

LATENCIES = ("success", "queue", "compute_input", "compute_infer", "compute_output")


def counted(*, cached: bool = False) -> ModelStatistics:
    statistics = Statistics(inference_count=7, execution_count=5, pending=3, cached=cached)
    for number, name in enumerate((*LATENCIES, "cache_hit", "cache_miss"), 1):
        getattr(statistics, name).add(1000 * number + 999, 10 * number)
    statistics.failures[FailureReason.BACKEND] = 4
    statistics.cancelled[Phase.EXECUTING] = 6
    statistics.in_flight = 8
    return ModelStatistics("m", "1", statistics, load_seconds=1.5)


def lines(families: Any) -> list[str]:
    return render(families).splitlines()


def family(name: str, text: str, kind: str, *values: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *(f"{name}{each}" for each in values)]


M = '{model="m",version="1"}'
PLAIN = [
    *family(
        "nv_inference_request_success",
        "Number of successful inference requests, all batch sizes",
        *("counter", f"{M} 10"),
    ),
    *family(
        "nv_inference_request_failure",
        "Number of failed inference requests, all batch sizes",
        "counter",
        *(
            f'{{model="m",reason="{reason}",version="1"}} {count}'
            for reason, count in (("BACKEND", 4), ("CANCELED", 0), ("OTHER", 0), ("REJECTED", 0))
        ),
    ),
    *family(
        "nv_inference_count",
        "Number of inferences performed (does not include cached requests)",
        *("counter", f"{M} 7"),
    ),
    *family(
        "nv_inference_exec_count",
        "Number of model executions performed (does not include cached requests)",
        *("counter", f"{M} 5"),
    ),
]
TIMES = [
    *family(
        "nv_inference_request_duration_us",
        "Cumulative inference request duration in microseconds (includes cached requests)",
        *("counter", f"{M} 1"),
    ),
    *family(
        "nv_inference_queue_duration_us",
        "Cumulative inference queuing duration in microseconds (includes cached requests)",
        *("counter", f"{M} 2"),
    ),
    *family(
        "nv_inference_compute_input_duration_us",
        "Cumulative compute input duration in microseconds (does not include cached requests)",
        *("counter", f"{M} 3"),
    ),
    *family(
        "nv_inference_compute_infer_duration_us",
        "Cumulative compute inference duration in microseconds (does not include cached requests)",
        *("counter", f"{M} 4"),
    ),
    *family(
        "nv_inference_compute_output_duration_us",
        "Cumulative inference compute output duration in microseconds"
        " (does not include cached requests)",
        *("counter", f"{M} 5"),
    ),
]
PENDING = family(
    "nv_inference_pending_request_count",
    "Instantaneous number of pending requests awaiting execution per-model.",
    *("gauge", f"{M} 3"),
)


def test_a_model_s_counters_stand_in_their_order() -> None:
    told = lines(model_families([counted()], latencies=True))
    assert [line for line in told if "nv_cache" not in line] == [*PLAIN, *TIMES, *PENDING]
    without = lines(model_families([counted()], latencies=False))
    assert [line for line in without if "nv_cache" not in line] == [*PLAIN, *PENDING]


def test_only_models_with_a_cache_have_its_counters() -> None:
    names = {
        "nv_cache_num_hits_per_model": ("Number of cache hits per model", 60),
        "nv_cache_hit_duration_per_model": (
            "Total cache hit duration per model, in microseconds",
            6,
        ),
        "nv_cache_num_misses_per_model": ("Number of cache misses per model", 70),
        "nv_cache_miss_duration_per_model": (
            "Total cache miss (insert+lookup) duration per model, in microseconds",
            7,
        ),
    }
    told = lines(model_families([counted(cached=True)], latencies=True))
    expected = [
        line
        for name, (text, count) in names.items()
        for line in family(name, text, "counter", f"{M} {count}")
    ]
    assert [line for line in told if "nv_cache" in line] == expected
    bare = lines(model_families([counted(cached=True)], latencies=False))
    values = [line for line in bare if line.startswith("nv_cache")]
    assert values == [
        f"nv_cache_num_hits_per_model{M} 60",
        f"nv_cache_num_misses_per_model{M} 70",
    ]
    uncached = lines(model_families([counted()], latencies=True))
    assert not [line for line in uncached if line.startswith("nv_cache")]


def test_loads_have_their_seconds() -> None:
    assert lines([load_times([counted()])]) == family(
        "nv_model_load_duration_secs", "Model load time in seconds", "gauge", f"{M} 1.5"
    )


def test_only_models_with_executions_have_histograms() -> None:
    idle = ModelStatistics("idle", "1", Statistics())
    assert lines(queue_families([idle])) == []
    busy = counted()
    for rows in (1, 3, 256, 300):
        busy.statistics.executed(rows, 0, 0, 0)
    told = [line for line in lines(queue_families([idle, busy])) if "batch_size" in line]
    buckets = {1: 1, 2: 1, 4: 2, 8: 2, 16: 2, 32: 2, 64: 2, 128: 2, 256: 3, "+Inf": 4}
    assert told == [
        "# HELP penstock_batch_size Rows per model execution",
        "# TYPE penstock_batch_size histogram",
        *(
            f'penstock_batch_size_bucket{{model="m",version="1",le="{bound}"}} {count}'
            for bound, count in buckets.items()
        ),
        f"penstock_batch_size_sum{M} 560",
        f"penstock_batch_size_count{M} 4",
    ]


async def test_requests_in_flight_and_cancelled_ones_are_told() -> None:
    told = lines(flow_families([counted()]))
    cancelled = [
        f'{{model="m",phase="{phase}",version="1"}} {6 if phase == "executing" else 0}'
        for phase in ("queued", "forming", "executing", "streaming")
    ]
    assert told[:-1] == [
        *family(
            "penstock_cancelled_total",
            "Inference requests that were cancelled, by how far they had come",
            *("counter", *cancelled),
        ),
        *family(
            "penstock_in_flight_requests",
            "Inference requests that are admitted and not answered in full",
            *("gauge", f"{M} 8"),
        ),
        "# HELP penstock_event_loop_tasks Tasks of the server's event loop",
        "# TYPE penstock_event_loop_tasks gauge",
    ]
    # Not the task that writes the page: it is not always in one.
    assert told[-1] == f"penstock_event_loop_tasks {len(asyncio.all_tasks()) - 1}"


def test_without_models_and_a_loop_nothing_is_told_of_requests() -> None:
    assert lines(flow_families([])) == []


def test_spans_that_were_lost_are_told_by_every_reason_from_the_start() -> None:
    counts: Any = SimpleNamespace(exported=5, dropped=Counter({"refused": 2, "new": 1}))
    assert lines(trace_families(counts)) == [
        *family(
            "penstock_trace_spans_exported_total",
            "Spans that the collector of traces has taken",
            *("counter", " 5"),
        ),
        *family(
            "penstock_trace_spans_dropped_total",
            "Spans that were lost, by the reason",
            "counter",
            *(
                f'{{reason="{reason}"}} {count}'
                for reason, count in (
                    *(("buffer_full", 0), ("exit", 0), ("exporter_died", 0)),
                    *(("new", 1), ("not_plain", 0), ("refused", 2)),
                )
            ),
        ),
    ]


def test_wrong_policies_and_traffic_of_repositories_are_told() -> None:
    assert lines(access_families(3)) == family(
        "penstock_access_policy_reload_failures_total",
        "Changed files of the access policy that were wrong, and left the old policy in force",
        *("counter", " 3"),
    )
    remote = RemoteRepositories("", 0, {})
    assert not lines(repository_families(remote, None))
    remote.used = True
    remote.traffic.count(size=1, fetched=2, cached=3, retries=4)
    assert lines(repository_families(None, 2)) == family(
        "penstock_repository_missing",
        "Repositories that could not be read since the start",
        *("gauge", " 2"),
    )
    assert lines(repository_families(remote, None)) == [
        *family(
            "penstock_repository_bytes_total",
            "Bytes that were fetched from repositories",
            *("counter", " 1"),
        ),
        *family(
            "penstock_repository_objects_total",
            "Objects of repositories that models needed, by where they came from",
            *("counter", '{source="fetched"} 2', '{source="cached"} 3'),
        ),
        *family(
            "penstock_repository_retries_total",
            "Requests to repositories that broke, and were made again from where they broke",
            *("counter", " 4"),
        ),
    ]


@pytest.mark.parametrize("bound", [64e-6, inf])
def test_bounds_of_waits_are_those_that_are_counted(bound: float) -> None:
    told = lines(queue_families([counted()]))
    shown = "+Inf" if bound == inf else f"{bound:g}"
    assert any(f'le="{shown}"' in line for line in told if "queue_duration" in line)
