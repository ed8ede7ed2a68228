"""`penstock perf` where something is wrong: the words, the partial results, the exit status."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.serving import Served, alive, serving, wait_until
from penstock.perf.errors import Status
from perf.conftest import Perf, write_models
from perf.failing_server import FailingServer


@pytest.mark.parametrize("wire", ["grpc", "http", "openai"])
def test_no_server_at_the_address(perf: Perf, wire: str) -> None:
    ran = perf("-m", "identity", "-i", wire, "-u", "127.0.0.1:1")
    assert ran.status == Status.UNREACHABLE
    assert "127.0.0.1:1: connection refused" in ran.printed


def test_unknown_model_is_named(perf: Perf, served: Served) -> None:
    ran = perf("-m", "missing", "-u", served.grpc)
    assert ran.status == Status.UNREACHABLE
    assert "'missing' is not found" in ran.printed


def test_another_protocol_at_the_address(perf: Perf, served: Served) -> None:
    ran = perf("-m", "identity", "-u", served.http)
    assert ran.status == Status.UNREACHABLE
    assert "gRPC" in ran.printed


@pytest.mark.parametrize("mode", [[], ["--streaming"]])
def test_every_second_request_fails(perf: Perf, failing: FailingServer, mode: list[str]) -> None:
    ran = perf("-m", "moody", "-u", failing.address, "-n", "40", *mode)
    assert ran.status == Status.FAILURES
    assert (ran.point["requests"], ran.point["failed"]) == (20, 20)
    (text,) = ran.point["errors"]
    assert failing.text in text
    assert "failed 20 times" in ran.printed


def test_results_without_a_single_answer_are_results(
    perf: Perf, served: Served, tmp_path: Path
) -> None:
    """The model refuses different numbers of values and delays, inside of the stream."""
    shapes = ["--shape", "IN:2", "--shape", "DELAY:3"]
    files = ["--csv", str(tmp_path / "loads.csv"), "--html", str(tmp_path / "page.html")]
    ran = perf("-m", "repeat", "-u", served.grpc, "-n", "5", "-c", "1,2", *shapes, *files)
    assert ran.status == Status.FAILURES
    assert (ran.point["requests"], ran.point["failed"]) == (0, 5)
    assert ran.point["latency_ms"] is None
    assert "No request was answered." in (tmp_path / "page.html").read_text()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Served]:
    """A server that a test may kill."""
    with serving(write_models(tmp_path / "models"), tmp_path / "log") as server:
        yield server


def test_server_that_dies_leaves_the_results_until_then(perf: Perf, mortal: Served) -> None:
    killer = threading.Timer(0.8, mortal.process.kill)
    killer.start()
    began = time.monotonic()
    ran = perf("-m", "identity", "-u", mortal.grpc, "-c", "4", "-d", "60")
    killer.join()
    assert ran.status == Status.FAILURES
    assert time.monotonic() - began < 30
    assert ran.point["requests"] > 0
    assert 1 <= ran.point["failed"] <= 64
    assert "the server is gone: Connection refused" in ran.printed


def test_processes_end_with_the_command_that_started_them(served: Served) -> None:
    command = [sys.executable, "-m", "penstock", "perf", "-m", "identity", "-u", served.grpc]
    process = subprocess.Popen([*command, "-d", "60", "-c", "2", "-p", "2", "-q"])
    workers: list[int] = []

    def started() -> bool:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        workers[:] = map(int, children.read_text().split())
        return len(workers) == 2

    wait_until(started)
    process.kill()
    process.wait()
    wait_until(lambda: not any(map(alive, workers)))


def test_rate_that_cannot_be_reached(perf: Perf, served: Served) -> None:
    ran = perf("-m", "identity", "-u", served.grpc, "-r", "200000", "--drain", "0.1")
    assert ran.status == Status.SHORT
    assert ran.point["throughput"] < 0.9 * ran.point["offered"]
    assert "asked for" in ran.printed


def test_timeouts_are_failures(perf: Perf, served: Served, tmp_path: Path) -> None:
    data = tmp_path / "slow.json"
    data.write_text('{"data": [{"IN": [1], "DELAY": [400], "WAIT": [0]}]}')
    words = ["--input-data", str(data), "-n", "2", "--timeout", "0.1"]
    ran = perf("-m", "repeat", "-u", served.grpc, *words)
    assert ran.status == Status.FAILURES
    assert ran.point["errors"] == {"no answer within 0.1 s": 2}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("{", "not JSON"),
        ('{"data": []}', 'no list "data"'),
        ('{"data": [{"IN": [1, 2, 3]}]}', "shape [4] has 4 elements, and 3 are given"),
        ('{"data": [{"IN": {"content": [1, 2], "shape": [2]}}]}', "has shape [4], not [2]"),
        ('{"data": [{"OUT": [1]}]}', "no input 'OUT'"),
        ('{"data": [{}]}', "input 'IN' is missing"),
        ('{"data": [{"IN": ["a", "b", "c", "d"]}]}', "not FP32"),
        ('{"data": [{"IN": {"b64": "AAA="}}]}', "2 bytes are no whole number of FP32"),
    ],
)
def test_input_file_with_a_fault(
    perf: Perf, served: Served, tmp_path: Path, content: str, fault: str
) -> None:
    file = tmp_path / "input.json"
    file.write_text(content)
    ran = perf("-m", "identity", "-u", served.grpc, "--input-data", str(file))
    assert ran.status == Status.USAGE
    assert str(file) in ran.printed
    assert fault in ran.printed


@pytest.mark.parametrize(
    "words",
    [
        ["-c", "0"],
        ["-c", "1", "-r", "1"],
        ["--streaming", "-i", "http"],
        ["--endpoint", "chat"],
        ["--goodput", "speed:1"],
        ["--shape", "IN"],
        ["--prompt-words", "many"],
        ["--request-parameter", "a:b:c"],
        ["-d", "soon"],
        ["--trace", "/missing"],
        ["-u", "not an address"],
    ],
)
def test_options_that_are_wrong(perf: Perf, words: list[str]) -> None:
    ran = perf("-m", "identity", *words)
    assert ran.status == Status.USAGE
    assert "penstock perf: error" in ran.printed
