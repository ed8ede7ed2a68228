"""Results of `penstock perf`: comparisons, gates, goodput, files, stability, and Ctrl-C."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from harness.serving import Served, wait_until
from penstock_client.perf.errors import Status
from penstock_client.perf.gate import Limit, violations
from perf.conftest import Perf, requests_of


@pytest.mark.slow
def test_a_server_compared_with_itself_is_as_fast(perf: Perf, served: Served) -> None:
    words = ["--compare", served.grpc, served.grpc, "--rounds", "2", "-n", "20"]
    ran = perf("-m", "identity", *words)
    assert ran.status == 0, ran.printed
    throughput = ran.results["comparison"]["figures"]["throughput"]
    assert throughput["low"] <= throughput["ratio"] <= throughput["high"]
    assert 0.05 < throughput["ratio"] < 20
    labels = [each["load"]["label"][0] for each in ran.results["rounds"]]
    assert labels == ["A", "B", "B", "A"]


@pytest.mark.parametrize(
    ("limits", "status", "words"),
    [
        ("failed = { max = 0 }\n'latency_ms.p99.9' = { max = 60000 }", Status.FINE, ""),
        ("throughput = { min = 1e9 }", Status.GATE, "has to be 1e+09 or more"),
        ("'latency_ms.p50' = { max = 0 }", Status.GATE, "has to be 0 or less"),
        ("speed = { min = 1 }", Status.GATE, "there is no figure speed"),
        ("throughput = 5", Status.USAGE, "write { min = 1.0 }"),
        ("failed = { max = nan }", Status.USAGE, "write { min = 1.0 }"),
        ("failed = { max = true }", Status.USAGE, "write { min = 1.0 }"),
        ("failed = { max = 0 }\n[more]\nfailed = 1", Status.USAGE, "more is not known"),
        ("'comparison.throughput.low' = { min = 0 }", Status.USAGE, "is for --compare A B"),
    ],
)
def test_gate_decides(
    perf: Perf, served: Served, tmp_path: Path, limits: str, status: Status, words: str
) -> None:
    gate = tmp_path / "gate.toml"
    gate.write_text(f"[limits]\n{limits}\n")
    ran = perf("-m", "identity", "-u", served.grpc, "-n", "10", "--gate", str(gate))
    assert ran.status == status
    assert words in ran.printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "status", "words"),
    [
        ("failed = { max = 0 }\n'comparison.throughput.ratio' = { min = 1e-9 }", Status.FINE, []),
        (
            "throughput = { min = 1e9 }\n'comparison.throughput.ratio' = { min = 1e9 }\n"
            "'comparison.speed.ratio' = { min = 0 }",
            Status.GATE,
            [
                "gate: A concurrency 1: throughput is",
                "gate: comparison: comparison.throughput.ratio is",
                "gate: comparison: there is no figure comparison.speed.ratio",
            ],
        ),
    ],
)
def test_gate_decides_about_two_servers(
    perf: Perf, served: Served, tmp_path: Path, limits: str, status: Status, words: list[str]
) -> None:
    """Limits of loads are for A."""
    gate = tmp_path / "gate.toml"
    gate.write_text(f"[limits]\n{limits}\n")
    compared = ["--compare", served.grpc, served.grpc, "--rounds", "2", "-n", "10"]
    ran = perf("-m", "identity", *compared, "--gate", str(gate))
    assert ran.status == status, ran.printed
    assert [text for text in words if text not in ran.printed] == []
    assert "gate: B" not in ran.printed


def test_gate_without_anything_measured_is_not_passed() -> None:
    (words,) = violations([Limit("failed", None, 0.0)], {"points": []})
    assert words == "gate: nothing was measured for failed"


def test_goodput_counts_what_keeps_to_limits(perf: Perf, served: Served, tmp_path: Path) -> None:
    data = tmp_path / "slow.json"
    data.write_text('{"data": [{"IN": [1, 2], "DELAY": [0, 80], "WAIT": [0]}]}')
    words = ["-m", "repeat", "-u", served.grpc, "-n", "4", "--input-data", str(data)]
    assert perf(*words, "--goodput", "itl:40").point["goodput"] == 0
    good = perf(*words, "--goodput", "itl:60000", "--goodput", "tokens_per_second:0.1").point
    assert good["goodput"] == pytest.approx(good["throughput"])


def test_files_hold_each_load_and_each_request(perf: Perf, served: Served, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("loads.csv", "requests.csv", "page.html")]
    options = [f"--{name}" for name in ("csv", "requests-csv", "html")]
    words = [str(part) for pair in zip(options, files, strict=True) for part in pair]
    ran = perf("-m", "identity", "-u", served.grpc, "-n", "10", "-c", "1,2", *words)
    assert ran.status == 0, ran.printed
    loads, requests = (_rows(file) for file in files[:2])
    assert [load["Concurrency"] for load in loads] == ["1", "2"]
    assert float(loads[0]["p50 latency"]) > 0
    assert len(requests) == 20
    page = _Page()
    page.feed(files[2].read_text())
    assert page.counts["svg"] == 10
    assert not page.links


def _rows(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text().splitlines()))


class _Page(HTMLParser):
    """Counts elements, and what a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.links += [str(value) for name, value in attrs if name in ("src", "href")]


def test_windows_are_measured_until_they_agree(perf: Perf, served: Served) -> None:
    words = ["--stable", "1000", "--window", "0.2"]
    ran = perf("-m", "identity", "-u", served.grpc, *words)
    assert ran.status == 0, ran.printed
    assert ran.point["stable"] is True
    assert 0.5 < ran.point["seconds"] < 3


def test_trace_says_when_requests_are_sent(perf: Perf, served: Served, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [{"timestamp": 1000 + at} for at in (0, 100, 300, 300)]
    trace.write_text("\n".join(map(json.dumps, lines)))
    requests = tmp_path / "requests.csv"
    words = ["--trace", str(trace), "-p", "2", "--requests-csv", str(requests)]
    ran = perf("-m", "identity", "-u", served.grpc, *words)
    assert (ran.status, ran.point["requests"]) == (0, 4), ran.printed
    due = sorted(float(each["due"]) for each in _rows(requests))
    assert due == pytest.approx([0, 0.1, 0.3, 0.3], abs=0.002)


def test_intervals_lie_between_requests(perf: Perf, served: Served, tmp_path: Path) -> None:
    intervals = tmp_path / "intervals"
    intervals.write_text("10000\n30000\n")
    words = ["--intervals", str(intervals), "-p", "2", "-d", "0.4", "--warmup", "0"]
    ran = perf("-m", "identity", "-u", served.grpc, *words)
    assert ran.point["offered"] == pytest.approx(50, abs=8)


def test_server_side_has_cpu_and_metrics(perf: Perf, served: Served) -> None:
    words = ["--metrics-url", served.metrics, "--server-pid", str(served.process.pid)]
    ran = perf("-m", "identity", "-u", served.grpc, "-c", "2", "-n", "2000", *words)
    assert ran.point["server"]["cpu_us_per_request"] > 0
    assert "gpus" in ran.point["server"]["metrics"]


@pytest.mark.slow
@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGINT] * 2, [signal.SIGTERM]])
def test_what_was_measured_until_a_signal_is_reported(
    served: Served, tmp_path: Path, signals: list[signal.Signals]
) -> None:
    """Programs such as `timeout` pass on what the whole group has got already."""
    results = tmp_path / "results.json"
    command = [sys.executable, "-m", "penstock", "perf", "-m", "identity", "-u", served.grpc]
    command += ["-d", "60", "--warmup", "0", "--json", str(results), "--metrics-url", "nowhere:1"]
    requests = requests_of(served)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: requests_of(served) > requests + 100)
    for each in signals:
        process.send_signal(each)
    assert process.wait(20) == Status.INTERRUPTED
    (point,) = json.loads(results.read_text())["points"]
    assert point["requests"] > 50
