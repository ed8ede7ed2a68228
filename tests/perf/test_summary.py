"""Figures of a measurement, by requests whose times are written down here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock_client.perf.load.job import Chunk
from penstock_client.perf.load.plan import Point
from penstock_client.perf.load.results import Collected, Results
from penstock_client.perf.measure import Measured
from penstock_client.perf.report.csv import write_loads, write_requests
from penstock_client.perf.server_side import Snapshot, machine_busy, server_side
from penstock_client.perf.summary import (
    GOALS,
    Goal,
    distribution,
    is_short,
    is_unanswered,
    summarize,
)
from penstock_client.reading.counters import Durations, ModelCounters, ModelKey

# Due, start, first and last response, end; payload, outcome (0 well, 1 cut off, 2 an error),
# responses, tokens.
ROWS = [
    ((9.0, 9.0, 9.1, 9.1, 9.2), (0, 0, 1, 0)),  # of the warm-up
    ((10.0, 10.1, 10.2, 10.4, 10.5), (0, 0, 3, 5)),
    ((10.5, 10.5, 10.6, 10.6, 11.5), (1, 0, 1, 1)),
    ((11.0, 11.0, 0.0, 0.0, 11.2), (0, 2, 0, 0)),
    ((11.9, 11.9, 0.0, 0.0, 12.0), (0, 1, 0, 0)),
    ((11.5, 11.6, 12.1, 12.1, 12.5), (0, 0, 1, 0)),  # answered too late
]
GAPS = [(10.2, 10.3), (10.3, 10.4), (12.0, 12.5)]


def results() -> Results:
    return Results(
        np.array([times for times, _ in ROWS]),
        np.array([counts for _, counts in ROWS], np.uint32),
        np.array([after - before for before, after in GAPS]),
        np.array([after for _, after in GAPS]),
        {2: "broken"},
    )


def measured(point: Point, **changed: Any) -> Measured:
    given: dict[str, Any] = {
        "point": point,
        "begin": 10.0,
        "end": 12.0,
        "results": results(),
        "before": Snapshot(10.0),
        "after": Snapshot(12.0),
        "cpu": 0.6,
        "busy": 0.5,
        "processes": 2,
        "stable": True,
        "problems": ("p",),
    }
    return Measured(**{**given, **changed})


CLOSED, OPEN = Point(concurrency=3), Point(rate=2.5, poisson=True)


def figures(point: Point = CLOSED, *, goals: tuple[Goal, ...] = (), **changed: Any) -> Any:
    return summarize(measured(point, **changed), rows=4, streamed=True, local=True, goals=goals)


def test_only_what_ended_within_the_measurement_counts() -> None:
    found = figures()
    assert (found["requests"], found["failed"], found["cut_off"], found["seconds"]) == (2, 1, 1, 2)
    assert (found["throughput"], found["inferences_per_second"]) == (1.0, 4.0)
    assert (found["errors"], found["stable"], found["problems"]) == ({"broken": 1}, True, ["p"])
    assert (found["tokens_per_second"], found["tokens_per_request"]) == (3.0, 3.0)
    assert found["load"] == {"label": "concurrency 3", "concurrency": 3}
    assert "offered" not in found
    assert "goodput" not in found


def test_a_closed_loop_s_latency_runs_from_the_sending() -> None:
    latency = figures()["latency_ms"]
    assert (latency["min"], latency["max"], latency["mean"]) == pytest.approx((400, 1000, 700))
    assert (latency["std"], latency["p50"], latency["p99"]) == pytest.approx((300, 700, 994))
    assert latency["p99.9"] == pytest.approx(999.4)


def test_an_open_loop_s_latency_runs_from_when_it_was_due_however_late_it_was_answered() -> None:
    found = figures(OPEN)
    latency = found["latency_ms"]
    assert (latency["min"], latency["max"]) == pytest.approx((500, 1000))
    assert latency["mean"] == pytest.approx((500 + 1000 + 1000) / 3)
    assert found["load"] == {
        "label": "rate 2.5 poisson",
        "rate": 2.5,
        "distribution": "poisson",
    }
    assert found["offered"] == 2.5
    assert found["send_delay_ms"]["max"] == pytest.approx(100)
    assert figures(Point(rate=2.5))["load"]["distribution"] == "constant"
    assert figures(Point(gaps=(1.0,)))["load"] == {"label": "1 intervals"}


def test_responses_of_streams_have_times_of_their_own() -> None:
    found = figures()
    assert (found["responses_per_second"], found["responses_per_request"]) == (2.0, 2.0)
    assert found["ttft_ms"]["max"] == found["ttft_ms"]["min"] == pytest.approx(100)
    assert found["gap_ms"]["mean"] == pytest.approx(100)
    # Four tokens after the first in 0.2 s; of a single one there is no time between tokens.
    assert found["per_token_ms"]["mean"] == found["per_token_ms"]["max"] == pytest.approx(50)
    plain = summarize(measured(CLOSED), rows=0, streamed=False, local=True)
    assert "ttft_ms" not in plain
    assert plain["curves"]["ttft_ms"] == []
    assert plain["inferences_per_second"] == plain["throughput"]


@pytest.mark.parametrize(
    ("metric", "limit", "good"),
    [
        ("latency", 399, 0),
        ("latency", 401, 1),
        ("latency", 1001, 2),
        ("ttft", 99, 0),
        ("ttft", 101, 2),
        ("itl", 49, 1),
        ("itl", 51, 2),
        ("tokens_per_second", 19, 2),
        ("tokens_per_second", 21, 1),
    ],
)
def test_goodput_counts_what_keeps_its_limit(metric: str, limit: float, good: int) -> None:
    goal = Goal(GOALS[metric], limit)
    found = figures(goals=(goal,))
    assert found["goodput"] == good / 2
    assert found["goals"] == {goal.metric: limit}
    both = figures(goals=(goal, Goal(GOALS["latency"], 1)))
    assert both["goodput"] == 0


def test_the_course_over_time_has_twenty_parts() -> None:
    parts = figures()["windows"]
    assert len(parts) == 20
    assert [each["at"] for each in parts] == pytest.approx([0.1 * n for n in range(20)])
    answered = {n: each["throughput"] for n, each in enumerate(parts) if each["throughput"]}
    assert answered == {5: pytest.approx(10), 15: pytest.approx(10)}
    assert [n for n, each in enumerate(parts) if each["failed"]] == [12]
    assert parts[5]["latency_p50_ms"] == parts[5]["latency_p99_ms"] == pytest.approx(400)
    assert parts[0]["latency_p50_ms"] is parts[0]["latency_p99_ms"] is None
    late = figures(OPEN)["windows"][5]
    assert late["latency_p50_ms"] == pytest.approx(500)


def test_curves_have_a_value_for_each_percent() -> None:
    curves = figures()["curves"]
    assert {name: len(values) for name, values in curves.items()} == {
        "latency_ms": 101,
        "ttft_ms": 101,
        "gap_ms": 101,
    }
    assert (curves["latency_ms"][0], curves["latency_ms"][50]) == pytest.approx((400, 700))


def test_nothing_measured_has_no_distribution() -> None:
    assert distribution(np.empty(0)) is None
    empty = Collected().results()
    found = figures(results=empty)
    assert (found["latency_ms"], found["requests"], found["curves"]["latency_ms"]) == (None, 0, [])
    assert found["client"]["cpu_us_per_request"] is None
    assert is_unanswered(found)
    assert not is_unanswered(figures())
    assert not is_unanswered(figures(OPEN, results=empty))
    assert not is_unanswered({"requests": 0, "failed": 1})


@pytest.mark.parametrize(
    ("answered", "failed", "short"), [(95, 0, False), (94, 0, True), (90, 10, False), (0, 0, True)]
)
def test_an_open_loop_is_short_below_95_percent(answered: int, failed: int, short: bool) -> None:
    found = {"throughput": answered / 2, "failed": failed, "seconds": 2.0, "offered": 50.0}
    assert is_short(found) is short
    del found["offered"]
    assert not is_short(found)


def test_the_load_itself_may_be_the_limit() -> None:
    found = figures()["client"]
    assert found == {
        "processes": 2,
        "cpu_us_per_request": pytest.approx(200_000),
        "busy": 0.5,
        "machine_busy": 0.0,
        "bottleneck": "",
    }
    busy = figures(busy=0.91)["client"]["bottleneck"]
    assert busy == "a process of the load was busy 91% of the time: use more --processes"
    assert figures(busy=0.9)["client"]["bottleneck"] == ""
    full: dict[str, Any] = {
        "before": Snapshot(10.0, machine=(1.0, 2.0)),
        "after": Snapshot(12, machine=(99, 102)),
    }
    both = figures(OPEN, busy=0.95, **full)["client"]["bottleneck"]
    assert both == (
        "a process of the load was busy 95% of the time: use more --processes; load and server"
        " share this machine, whose CPUs were busy 98% of the time"
    )
    late = figures(OPEN)["client"]["bottleneck"]
    assert late == "1 % of the requests were sent 100 ms late or later"
    elsewhere = summarize(measured(CLOSED, **full), rows=1, streamed=False, local=False)
    assert elsewhere["client"]["bottleneck"] == ""


def test_the_share_of_a_machine_that_was_used() -> None:
    assert machine_busy(Snapshot(0, machine=(1, 10)), Snapshot(1, machine=(2, 14))) == 0.25
    assert machine_busy(Snapshot(0), Snapshot(1)) == 0.0


def counters(success: float, **changed: Any) -> ModelCounters:
    durations = Durations(success, success / 2, success / 4, success / 8, success / 16)
    given = {"inferences": 2 * success, "executions": success / 2, "durations": durations}
    return ModelCounters(success=success, **{**given, **changed})


def test_the_server_s_side_is_the_growth_between_two_looks() -> None:
    key, idle, failing = ModelKey("m", "1"), ModelKey("idle", "1"), ModelKey("failing", "2")
    before = Snapshot(0.0, {key: counters(4), idle: counters(8)}, cpu=1.0)
    after = Snapshot(
        2.0,
        {key: counters(8), idle: counters(8), failing: counters(0, failures={"OTHER": 2.0})},
        cpu=2.0,
    )
    found = server_side(before, after, 50)
    assert (found["cpu_cores"], found["cpu_us_per_request"]) == (0.5, 20_000)
    failed, model = found["models"]
    assert model == {
        "model": "m",
        "version": "1",
        "requests": 4,
        "failed": 0,
        "inferences": 8,
        "executions": 2,
        "batch": 4,
        "request_us": 1e6,
        "queue_us": 5e5,
        "compute_input_us": 2.5e5,
        "compute_infer_us": 1.25e5,
        "compute_output_us": 62_500,
    }
    assert (failed["model"], failed["failed"], failed["batch"], failed["queue_us"]) == (
        *("failing", 2, None),
        None,
    )
    assert "metrics" not in found
    assert server_side(before, after, 0)["cpu_us_per_request"] is None
    assert server_side(Snapshot(0.0), after, 5).keys() == {"models"}


# -- what processes report ------------------------------------------------------------------------


def chunk(outcomes: list[int], *errors: str) -> Chunk:
    times = np.arange(5.0 * len(outcomes)).tobytes()
    counts = np.array([(7, each, 1, 2) for each in outcomes], np.uint32).tobytes()
    between = np.array([(1.0, 1.5)]).tobytes()
    return Chunk(times, counts, between, errors, 0.0, 0.0, 0, 0)


def test_errors_are_numbered_alike_for_all_processes() -> None:
    collected = Collected()
    collected.add(0, chunk([0, 2], "a"))
    collected.add(1, chunk([2, 3], "b", "a"))
    collected.add(0, chunk([2, 3, 1], "b"))
    found = collected.results()
    assert found.errors == {2: "a", 3: "b"}
    assert found.counts[:, 1].tolist() == [0, 2, 3, 2, 2, 3, 1]
    assert found.error_counts() == {"a": 3, "b": 2}
    assert (found.answered.sum(), found.cut_off.sum(), found.failed.sum()) == (1, 1, 5)
    assert (found.gaps.tolist(), found.gap_times.tolist()) == ([0.5] * 3, [1.5] * 3)
    assert found.times.shape == (7, 5)


# -- CSV ------------------------------------------------------------------------------------------


def test_a_row_for_each_load_has_perf_analyzer_s_columns(tmp_path: Any) -> None:
    key = ModelKey("m", "1")
    sides: dict[str, Any] = {
        "before": Snapshot(10.0),
        "after": Snapshot(12.0, {key: counters(2), ModelKey("a", "1"): counters(1)}),
    }
    points = [figures(**sides), figures(**sides, results=Collected().results())]
    write_loads(tmp_path / "loads.csv", points, "m")
    head, first, empty = (tmp_path / "loads.csv").read_text().splitlines()
    assert head == (
        "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,"
        "Server Compute Input,Server Compute Infer,Server Compute Output,Client Recv,p50 latency,"
        "p90 latency,p95 latency,p99 latency,Avg latency,Failed,Responses/Second,Tokens/Second,"
        "Goodput"
    )
    # Of the mean of 700,000 us, 937,500 us would be in the server, by what is written here.
    assert first == (
        "3,4.000,0,-237500,500000,250000,125000,62500,0,700000,940000,970000,994000,700000,1,2.0,"
        "3.0,"
    )
    assert empty == "3,0.000,0,,500000,250000,125000,62500,0,,,,,,0,0.0,,"
    write_loads(tmp_path / "rate.csv", [figures(OPEN, goals=(Goal(GOALS["ttft"], 1),))], "x")
    head, row = (tmp_path / "rate.csv").read_text().splitlines()
    assert head.startswith("Request Rate,")
    assert row.startswith("2.5,4.000,0,833333,,,,,0,")
    assert row.endswith(",1,2.0,3.0,0.0")


def test_a_row_for_each_request_has_times_after_the_first(tmp_path: Any) -> None:
    write_requests(tmp_path / "requests.csv", [results(), Collected().results()])
    assert (tmp_path / "requests.csv").read_text().splitlines()[:6] == [
        "load,payload,due,start,first_response,last_response,end,responses,tokens,error",
        "0,0,0.000000,0.000000,0.100000,0.100000,0.200000,1,0,",
        "0,0,1.000000,1.100000,1.200000,1.400000,1.500000,3,5,",
        "0,1,1.500000,1.500000,1.600000,1.600000,2.500000,1,1,",
        "0,0,2.000000,2.000000,,,2.200000,0,0,broken",
        "0,0,2.900000,2.900000,,,3.000000,0,0,cut off",
    ]
