"""`penstock perf` where something is wrong: the words, the partial results, the exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from itertools import count
from pathlib import Path

import pytest

from harness.http_threads import Quiet, answering
from harness.serving import Served, alive, serving, wait_until
from penstock_client.perf.errors import PerfError, Status
from penstock_client.perf.load.job import ClosedLoop, Job, Payload, Ready
from penstock_client.perf.load.pipe import read_message, write_message
from penstock_client.perf.load.processes import processes
from penstock_client.perf.wire.endpoint import Endpoint
from perf.conftest import Perf, requests_of, write_models
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
    assert "it speaks HTTP, not gRPC: is this its HTTP port?" in ran.printed


@pytest.mark.parametrize("wire", ["http", "openai"])
def test_the_port_of_grpc_where_http_is_asked_for(perf: Perf, served: Served, wire: str) -> None:
    ran = perf("-m", "identity", "-i", wire, "-u", served.grpc)
    assert ran.status == Status.UNREACHABLE
    assert "it does not speak HTTP: is this its gRPC port?" in ran.printed


def test_a_page_needs_the_library_that_draws(
    perf: Perf, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    requests = requests_of(served)
    ran = perf("-m", "identity", "-u", served.grpc, "--html", str(tmp_path / "page.html"))
    assert ran.status == Status.USAGE
    assert "--html: charts need the package matplotlib: pip install 'penstock-client[report]'" in (
        ran.printed
    )
    assert requests_of(served) == requests


@pytest.mark.parametrize(
    ("option", "file", "fault"),
    [
        ("--json", "missing/results.json", "there is no directory"),
        ("--csv", "missing/loads.csv", "there is no directory"),
        ("--html", ".", "is a directory"),
    ],
)
def test_results_that_would_have_no_place_are_told_before_the_load(
    perf: Perf, served: Served, tmp_path: Path, option: str, file: str, fault: str
) -> None:
    requests = requests_of(served)
    ran = perf("-m", "identity", "-u", served.grpc, option, str(tmp_path / file))
    assert ran.status == Status.USAGE
    assert fault in ran.printed
    assert requests_of(served) == requests


def test_a_file_without_a_prompt_is_refused(perf: Perf, tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_text("\n \n")
    ran = perf("-m", "llm", "-u", "127.0.0.1:1", "--prompt-file", str(file))
    assert ran.status == Status.USAGE
    assert f"{file}: there is no prompt in it" in ran.printed


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


@pytest.mark.parametrize("wire", ["grpc", "http"])
@pytest.mark.slow
def test_server_that_dies_leaves_the_results_until_then(
    perf: Perf, mortal: Served, wire: str
) -> None:
    def kill() -> None:
        wait_until(lambda: requests_of(mortal) > 100)
        mortal.process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    address = mortal.grpc if wire == "grpc" else mortal.http
    words = ["-c", "4", "-d", "600", "--warmup", "0"]
    ran = perf("-m", "identity", "-i", wire, "-u", address, *words)
    killer.join()
    assert ran.status == Status.FAILURES
    assert ran.point["requests"] > 0
    assert 1 <= ran.point["failed"] <= 64
    assert f"the server at {address} is gone: Connection refused" in ran.printed


@contextmanager
def _killing(victim: Served, at: int) -> Iterator[str]:
    """The address of a metrics page that kills a server the `at`-th time that it is asked for.

    It is asked for twice for each load: at its beginning or behind its warm-up, and at its end.
    """
    asked = count(1)

    class Page(Quiet, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if next(asked) == at:
                victim.process.kill()
                victim.process.wait()
            self.send_error(404)

    with answering(HTTPServer(("127.0.0.1", 0), Page)) as address:
        yield f"{address}/metrics"


@pytest.mark.slow
def test_loads_before_the_server_died_are_reported(
    perf: Perf, mortal: Served, tmp_path: Path
) -> None:
    files = [tmp_path / name for name in ("loads.csv", "page.html", "requests.csv")]
    options = zip(("--csv", "--html", "--requests-csv"), map(str, files), strict=True)
    words = ["-n", "20", "-c", "1,2,4", *(word for pair in options for word in pair)]
    with _killing(mortal, at=4) as page:
        ran = perf("-m", "identity", "-u", mortal.grpc, "--metrics-url", page, *words)
    assert ran.status == Status.FAILURES, ran.printed
    assert [each["requests"] for each in ran.results["points"]] == [20, 20]
    reason = f"concurrency 4: no connection to {mortal.grpc}: connection refused"
    assert ran.results["verdict"]["reasons"] == [reason]
    assert reason in ran.printed
    assert [len(file.read_text().splitlines()) for file in (files[0], files[2])] == [3, 41]
    assert reason in files[1].read_text()


@pytest.mark.parametrize(
    ("victim", "at", "rounds", "pairs"), [("A", 8, "ABBA", 2), ("B", 2, "A", 0)]
)
@pytest.mark.slow
def test_rounds_before_a_server_died_are_compared(
    perf: Perf,
    served: Served,
    mortal: Served,
    tmp_path: Path,
    victim: str,
    at: int,
    rounds: str,
    pairs: int,
) -> None:
    html = tmp_path / "page.html"
    servers = [mortal.grpc, served.grpc] if victim == "A" else [served.grpc, mortal.grpc]
    words = ["--compare", *servers, "--rounds", "4", "-n", "10", "--html", str(html)]
    with _killing(mortal, at) as page:
        ran = perf("-m", "identity", "--metrics-url", page, *words)
    assert ran.status == Status.FAILURES, ran.printed
    assert "".join(each["side"] for each in ran.results["rounds"]) == rounds
    assert len(ran.results["comparison"]["rounds"]) == pairs
    assert f"no connection to {mortal.grpc}: connection refused" in html.read_text()


@pytest.mark.slow
def test_a_server_that_is_gone_at_the_end_of_a_short_load_is_told_of(
    perf: Perf, mortal: Served
) -> None:
    """Sooner than it takes to give it up; it dies with the warm-up."""
    with _killing(mortal, at=1) as page:
        ran = perf("-m", "identity", "-u", mortal.grpc, "-c", "1,2", "--metrics-url", page)
    assert ran.status == Status.FAILURES
    (point,) = ran.results["points"]
    assert point["problems"] == [f"the server at {mortal.grpc} is gone: Connection refused"]


@dataclass(frozen=True, slots=True)
class _Running:
    """`penstock perf` in a process of its own, with a load by two processes under way."""

    process: subprocess.Popen[str]
    workers: tuple[int, ...]


@pytest.fixture
def running(served: Served, tmp_path: Path) -> Iterator[_Running]:
    command = [sys.executable, "-m", "penstock", "perf", "-m", "identity", "-u", served.grpc]
    command += ["-d", "60", "--warmup", "0", "-c", "2", "-p", "2", "-q"]
    command += ["--json", str(tmp_path / "results.json")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        wait_until(lambda: len(_children(process.pid)) == 2)
        workers = _children(process.pid)
        wait_until(lambda: all(_written(each) > 5000 for each in workers))
        yield _Running(process, workers)
        process.kill()


def _children(pid: int) -> tuple[int, ...]:
    return tuple(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def _written(pid: int) -> int:
    """Bytes that a process of the load has told of requests; those to sockets are not counted."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


@pytest.mark.slow
def test_processes_end_with_the_command_that_started_them(running: _Running) -> None:
    running.process.kill()
    printed = running.process.communicate(timeout=20)[0]
    wait_until(lambda: not any(map(alive, running.workers)))
    assert printed == ""


@pytest.mark.slow
def test_a_process_of_the_load_that_is_killed_leaves_the_results(
    running: _Running, tmp_path: Path
) -> None:
    for worker in running.workers:
        os.kill(worker, signal.SIGKILL)
    printed = running.process.communicate(timeout=20)[0]
    assert running.process.returncode == Status.FAILURES
    assert "a process of the load ended with signal SIGKILL" in printed
    assert "Traceback" not in printed
    (point,) = json.loads((tmp_path / "results.json").read_text())["points"]
    assert (point["requests"] > 0, point["failed"]) == (True, 0)


def test_a_process_of_the_load_that_does_not_start_is_told_of() -> None:
    large = Payload(b"", bytes(1 << 20))
    job = Job(Endpoint("", 1), False, False, (large,), ClosedLoop(1), 1, 1.0)
    with processes(1) as started:
        (worker,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()[-1:]
        os.kill(int(worker), signal.SIGKILL)
        with pytest.raises(PerfError, match="ended with signal SIGKILL"):
            started.begin([job])


@pytest.mark.slow
def test_a_reader_that_has_enough_ends_it_quietly(served: Served) -> None:
    command = [sys.executable, "-m", "penstock", "perf", "-m", "identity", "-u", served.grpc]
    with subprocess.Popen(
        [*command, "-n", "5"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(20) == Status.PIPE_CLOSED
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_message_that_is_cut_off_is_the_end() -> None:
    whole = BytesIO()
    write_message(whole, Ready("no"))
    for size in range(len(whole.getvalue())):
        with pytest.raises(EOFError):
            read_message(BytesIO(whole.getvalue()[:size]))


@pytest.mark.parametrize(
    ("scheme", "words"), [("https", ["--tls-ca", "missing.pem"]), ("http", ["-H", "name:\u20ac"])]
)
def test_what_cannot_be_sent_over_http_is_told(
    perf: Perf, served: Served, scheme: str, words: list[str]
) -> None:
    ran = perf("-m", "identity", "-i", "http", "-u", f"{scheme}://{served.http}", *words)
    assert ran.status == Status.UNREACHABLE
    assert "penstock perf: no answer over HTTP" in ran.printed


def test_any_name_of_a_model_is_asked_for(perf: Perf, served: Served) -> None:
    ran = perf("-m", "mod\u00e8l e/..", "-i", "http", "-u", served.http)
    assert ran.status == Status.UNREACHABLE
    assert "refused GET /v2/models/mod%C3%A8l%20e%2F..:" in ran.printed


def test_inputs_that_no_request_has_room_for_are_refused(perf: Perf, served: Served) -> None:
    ran = perf("-m", "any", "-u", served.grpc, "--shape", "IN:99999999999")
    assert ran.status == Status.USAGE
    assert "the inputs would have 399999999996 bytes" in ran.printed


def test_rate_that_cannot_be_reached(perf: Perf, served: Served) -> None:
    ran = perf("-m", "identity", "-u", served.grpc, "-r", "200000", "--drain", "0.1")
    assert ran.status == Status.SHORT
    assert ran.point["throughput"] < 0.9 * ran.point["offered"]
    assert "asked for" in ran.printed


def test_load_that_ends_before_the_first_answer_has_measured_nothing(
    perf: Perf, served: Served, tmp_path: Path
) -> None:
    data = tmp_path / "slow.json"
    data.write_text('{"data": [{"IN": [1], "DELAY": [600000], "WAIT": [0]}]}')
    ran = perf("-m", "repeat", "-u", served.grpc, "--input-data", str(data), "-c", "1,2")
    assert ran.status == Status.SHORT
    assert [each["requests"] for each in ran.results["points"]] == [0, 0]
    assert "concurrency 2: no request was answered in its time" in ran.printed


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
        ('{"data": [{"IN": {"b64": "AAA="}}]}', "2 bytes are not a whole number of FP32 elements"),
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
        ["-c", "1.5"],
        ["-c", "1:1e18:1"],
        ["-r", "1:inf:1"],
        ["-c", "1", "-r", "1"],
        ["--streaming", "-i", "http"],
        ["--endpoint", "chat"],
        ["--goodput", "speed:1"],
        ["--goodput", "ttft:nan"],
        ["--shape", "IN"],
        ["--shape", "IN:-1"],
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
