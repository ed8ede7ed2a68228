"""What `penstock perf` prints, letter by letter."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest

from penstock_client.perf.load.plan import Point
from penstock_client.perf.measure import Progress
from penstock_client.perf.report.console import Ticker, comparison_table, lines, table

LATENCY = {"mean": 1234.5, "std": 1, "min": 0, "max": 2.345, "p50": 0.01234, "p95": 5, "p99": 7}
FIGURES: dict[str, Any] = {
    "load": {"label": "concurrency 4"},
    "requests": 100,
    "failed": 0,
    "cut_off": 0,
    "seconds": 2.04,
    "throughput": 49.0,
    "inferences_per_second": 49.0,
    "stable": None,
    "latency_ms": LATENCY,
    "server": {"models": []},
    "client": {"cpu_us_per_request": None, "bottleneck": ""},
    "errors": {},
    "problems": [],
}


def printed(**changed: Any) -> list[str]:
    return list(lines({**FIGURES, **changed}))


def test_what_there_is_is_printed_and_no_more() -> None:
    assert printed() == [
        "",
        "concurrency 4: 100 requests in 2.0 s",
        "  49.0 requests/s",
        "  ms                      mean       max       p50       p95       p99",
        "  latency                 1234      2.35     0.012         5         7",
    ]
    assert printed(latency_ms=None)[3:] == []


def test_everything_has_its_words() -> None:
    model = {
        "model": "m",
        "requests": 9.0,
        "executions": 3.0,
        "batch": 3.0,
        "queue_us": 1500.0,
        "compute_input_us": 10.0,
        "compute_infer_us": None,
        "compute_output_us": 1.0,
    }
    assert printed(
        failed=3,
        cut_off=2,
        offered=60.0,
        inferences_per_second=196.0,
        responses_per_second=98.0,
        responses_per_request=2.0,
        tokens_per_second=500.0,
        tokens_per_request=10.2,
        goodput=40.0,
        stable=True,
        latency_ms=None,
        server={
            "models": [model, {**model, "model": "n", "batch": None}],
            "cpu_us_per_request": 12.3,
            "cpu_cores": 1.5,
        },
        client={
            "cpu_us_per_request": 45.6,
            "busy": 0.5,
            "processes": 2,
            "bottleneck": "too slow",
        },
        errors={"broken": 3},
        problems=["a problem"],
    ) == [
        "",
        "concurrency 4: 100 requests in 2.0 s, 3 failed, 2 still under way",
        "  49.0 requests/s of 60.0 asked for, 196.0 inferences/s, 98.0 responses/s, 2.0 responses"
        " a request, 500.0 tokens/s, 10.2 tokens a request, 40.0 good requests/s, stable",
        "  server: m: 9 requests, 3 executions, batches of 3.0; ms: queue 1.500, compute input"
        " 0.010, compute output 0.001",
        "  server: n: 9 requests, 3 executions; ms: queue 1.500, compute input 0.010, compute"
        " output 0.001",
        "  server: 12 µs of CPU a request, 1.50 cores",
        "  client: 46 µs of CPU a request, 50% of a core in the busiest of 2",
        "  THE SERVER MAY NOT BE THE LIMIT: too slow",
        "  failed 3 times: broken",
        "  a problem",
    ]
    assert printed(stable=False)[2] == "  49.0 requests/s, NOT stable"


def test_several_loads_are_a_table() -> None:
    other = {**FIGURES, "load": {"label": "rate 10"}, "latency_ms": None, "failed": 12}
    assert list(table([FIGURES, other])) == [
        "",
        "  load           requests/s  p50 ms  p95 ms  p99 ms  failed",
        "  concurrency 4        49.0   0.012       5       7       0",
        "  rate 10              49.0       -       -       -      12",
    ]


def test_two_servers_are_compared_by_their_ratios() -> None:
    each = {"a": 1000.0, "b": 999.9, "ratio": 1.0001, "low": 0.9, "high": 1.1}
    compared = {
        "a": "one:1",
        "b": "two:2",
        "rounds": [{}, {}],
        "figures": {"throughput": each, "p50": {**each, "a": 0.5, "low": None, "high": None}},
    }
    assert list(comparison_table(compared)) == [
        "",
        "A one:1, B two:2, 2 rounds",
        "                  A      B  A / B  95 % confidence",
        "  throughput   1000  1e+03  1.000   0.900 to 1.100",
        "  p50         0.500  1e+03  1.000                -",
    ]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def progress(**changed: Any) -> Progress:
    given: dict[str, Any] = {
        "point": Point(concurrency=4),
        "seconds": 5.0,
        "of": 10.0,
        "answered": 7,
        "failed": 0,
        "in_flight": 4,
        "waiting": 0,
        "rate": 3.4,
    }
    return Progress(**{**given, **changed})


def test_progress_is_one_line_of_a_terminal() -> None:
    terminal = Terminal()
    ticker = Ticker(terminal, quiet=False)
    ticker(progress(), "A ")
    half = "█" * 12 + "·" * 12
    assert terminal.getvalue() == (
        f"\r\x1b[KA concurrency 4  {half} 5 s  7 answered, 4 under way, 3/s"
    )
    terminal.seek(0)
    ticker(progress(failed=2, waiting=3, seconds=11.0))
    assert f"{'█' * 24} 11 s  7 answered, 2 failed, 4 under way, 3 waiting, 3/s" in (
        terminal.getvalue()
    )
    ticker(progress(of=1e5))
    assert "·" * 24 in terminal.getvalue()
    ticker.clear()
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize(("stream", "quiet"), [(StringIO(), False), (Terminal(), True)])
def test_elsewhere_nothing_is_shown(stream: StringIO, quiet: bool) -> None:
    ticker = Ticker(stream, quiet)
    ticker(progress())
    ticker.clear()
    assert stream.getvalue() == ""
