"""`penstock perf` against real servers: loads of each kind over each wire, and their figures."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.serving import Served
from perf.conftest import Perf

_NOT_REACHED = 5
"""The status of an open loop whose rate a busy machine has not reached."""
_TENSORS = ["--shape", "IN:6", "--shape", "DELAY:6", "--input-data", "zero"]


def _address(served: Served, wire: str) -> str:
    return served.grpc if wire == "grpc" else served.http


@pytest.mark.contract("PA-25")
@pytest.mark.parametrize("wire", ["grpc", "http"])
def test_closed_loop_counts_what_the_server_counts(perf: Perf, served: Served, wire: str) -> None:
    ran = perf("-m", "identity", "-i", wire, "-u", _address(served, wire), "-n", "200", "-c", "4")
    assert ran.status == 0, ran.printed
    assert (ran.point["requests"], ran.point["failed"]) == (200, 0)
    (model,) = ran.point["server"]["models"]
    assert (model["model"], model["requests"]) == ("identity", 200)
    latency = ran.point["latency_ms"]
    assert 0 < latency["min"] <= latency["p50"] <= latency["p99"] <= latency["max"]


@pytest.mark.slow
def test_a_connection_takes_more_than_its_window(perf: Perf, served: Served) -> None:
    """Half a GiB of answers, after which the window is opened again, by what it has lost."""
    ran = perf("-m", "any", "--shape", "IN:16384", "-u", served.grpc, "-n", "8400", "-p", "1")
    assert ran.status == 0, ran.printed
    assert (ran.point["requests"], ran.point["failed"]) == (8400, 0)


def test_several_processes_share_the_requests(perf: Perf, served: Served) -> None:
    ran = perf("-m", "identity", "-u", served.grpc, "-n", "101", "-c", "5", "-p", "2")
    assert (ran.point["requests"], ran.point["client"]["processes"]) == (101, 2)


def test_sweep_has_a_row_for_each_load(perf: Perf, served: Served) -> None:
    ran = perf("-m", "identity", "-u", served.grpc, "-n", "20", "-c", "1:3:2")
    assert [point["load"]["concurrency"] for point in ran.results["points"]] == [1, 3]
    assert "concurrency 3" in ran.printed


def test_stream_has_times_to_the_first_response_and_between_them(
    perf: Perf, served: Served
) -> None:
    ran = perf("-m", "repeat", "-u", served.grpc, "-n", "10", "-c", "2", *_TENSORS)
    assert ran.status == 0, ran.printed
    assert ran.point["responses_per_request"] == 6
    assert ran.point["ttft_ms"]["max"] <= ran.point["latency_ms"]["max"]
    assert ran.point["gap_ms"]["min"] >= 0


def test_events_over_http_are_responses(perf: Perf, served: Served) -> None:
    words = ["-i", "http", "--endpoint", "generate", "--streaming", "-u", served.http]
    ran = perf("-m", "repeat", *words, "-n", "10", *_TENSORS)
    assert ran.status == 0, ran.printed
    assert ran.point["responses_per_request"] == 6


@pytest.mark.parametrize("distribution", ["constant", "poisson"])
def test_open_loop_keeps_its_rate(perf: Perf, served: Served, distribution: str) -> None:
    words = ["-r", "100", "--distribution", distribution, "-p", "2", "-d", "1"]
    ran = perf("-m", "identity", "-u", served.grpc, *words)
    assert ran.status in (0, _NOT_REACHED), ran.printed
    assert 50 < ran.point["offered"] < 160
    assert ran.point["throughput"] == pytest.approx(ran.point["offered"], rel=0.3)


@pytest.mark.parametrize("wire", ["grpc", "http"])
def test_sequences_have_a_start_and_an_end(perf: Perf, served: Served, wire: str) -> None:
    """The server refuses requests of a sequence that it does not know."""
    words = ["--sequences", "3", "--sequence-length", "4", "-n", "60"]
    ran = perf("-m", "sequence", "-i", wire, "-u", _address(served, wire), *words)
    assert (ran.status, ran.point["failed"]) == (0, 0), ran.printed


@pytest.mark.parametrize("wire", ["grpc", "http"])
def test_tensors_may_be_in_shared_memory(perf: Perf, served: Served, wire: str) -> None:
    words = ["--shared-memory", "system", "-n", "20"]
    ran = perf("-m", "identity", "-i", wire, "-u", _address(served, wire), *words)
    assert (ran.status, ran.point["failed"]) == (0, 0), ran.printed


@pytest.mark.slow
def test_connections_are_not_bounded_by_what_a_shell_allows(served: Served) -> None:
    perf = [sys.executable, "-m", "penstock", "perf", "-m", "identity", "-i", "http"]
    load = ["-u", served.http, "-c", "100", "-n", "200"]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -Sn 64; exec "$@"', "sh", *perf, *load],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "200 requests" in done.stdout


@pytest.mark.slow
def test_two_servers_have_memory_of_their_own(perf: Perf, served: Served) -> None:
    words = ["--shared-memory", "system", "--rounds", "2", "-d", "0.2"]
    ran = perf("-m", "identity", "--compare", served.grpc, served.grpc, *words)
    assert ran.status == 0, ran.printed
    assert all(each["failed"] == 0 < each["requests"] for each in ran.results["rounds"])


@pytest.mark.parametrize("wire", ["grpc", "http"])
def test_requests_larger_than_windows_and_buffers_arrive(
    perf: Perf, served: Served, wire: str
) -> None:
    words = ["--shape", "IN:500000", "-n", "8", "-c", "4"]
    ran = perf("-m", "any", "-i", wire, "-u", _address(served, wire), *words)
    assert (ran.status, ran.point["requests"]) == (0, 8), ran.printed


def test_json_tensors_are_answered_as_json(perf: Perf, served: Served) -> None:
    forms = ["--input-tensor-format", "json", "--output-tensor-format", "json"]
    ran = perf("-m", "identity", "-i", "http", "-u", served.http, "-n", "10", "-b", "3", *forms)
    assert (ran.status, ran.point["failed"]) == (0, 0), ran.printed
    assert ran.point["inferences_per_second"] == pytest.approx(3 * ran.point["throughput"])
