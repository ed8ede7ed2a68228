"""The exit: what in-flight requests, a second signal and the log's rotation do to it."""

from __future__ import annotations

import json
import re
import signal
import socket
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse, RemoteDisconnected
from pathlib import Path

import grpc
import pytest

from app.python_models import write_python_model
from harness.processes import command_of
from harness.serving import Served, alive, serving, start, suspend, wait_until
from penstock.protocol import grpc_service_pb2 as pb

pytestmark = pytest.mark.slow

_SLEEPER = '''
import subprocess
import time


class TritonPythonModel:
    """Starts a process of its own, and answers late."""

    def initialize(self, args):
        subprocess.Popen(["sleep", "600"])

    def execute(self, requests):
        print("hanging", flush=True)
        time.sleep(SECONDS)
'''


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With a model that answers long after the exit timeout of any test."""
    return _sleeper(tmp_path / "models", 600)


def _sleeper(repository: Path, seconds: int) -> Path:
    source = _SLEEPER.replace("SECONDS", str(seconds))
    write_python_model(repository, "sleeper", source)
    return repository


def _live(connection: HTTPConnection) -> bool:
    connection.request("GET", "/v2/health/live")
    answer = connection.getresponse()
    answer.read()
    return answer.status == HTTPStatus.OK


def _asking(server: Served) -> HTTPConnection:
    """A connection with a request in flight, once it executes."""
    tensor = {"name": "X", "datatype": "INT32", "shape": [1], "data": [1]}
    connection = HTTPConnection(server.http)
    connection.request("POST", "/v2/models/sleeper/infer", json.dumps({"inputs": [tensor]}))
    wait_until(lambda: "hanging" in server.log.read_text())
    return connection


@pytest.mark.contract("W-09")
@pytest.mark.parametrize("transport", ["native", "grpcio"])
def test_a_grpc_call_that_is_cut_off_counts(
    repository: Path, tmp_path: Path, transport: str
) -> None:
    arguments = "--exit-timeout-secs=2", f"--grpc-transport={transport}"
    request = pb.ModelInferRequest(model_name="sleeper", raw_input_contents=[bytes(4)])
    request.inputs.add(name="X", datatype="INT32", shape=[1])
    with (
        serving(repository, tmp_path / "log", *arguments) as server,
        grpc.insecure_channel(server.grpc) as channel,
    ):
        method = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            pb.ModelInferRequest.SerializeToString,
            bytes,
        )
        call = method.future(request)
        wait_until(lambda: "hanging" in server.log.read_text())
        assert server.stop() == 1
        assert call.code() is not grpc.StatusCode.OK
    if transport == "native":  # grpc does not tell how many there are
        assert re.search(r"In flight: .*gRPC calls: 1", server.log.read_text())


@pytest.mark.contract("W-09")
def test_a_model_that_does_not_end_does_not_prolong_the_exit(tmp_path: Path) -> None:
    repository = _sleeper(tmp_path / "models", 600)
    with (
        serving(repository, tmp_path / "log", "--exit-timeout-secs=1") as server,
        closing(_asking(server)),
    ):
        family = server.family()
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "Exiting immediately" in server.log.read_text())
        assert server.process.wait(9) == 1  # sooner than the 10 s that a model has to finalize
    wait_until(lambda: not any(map(alive, family)))


def test_what_is_new_during_the_exit_is_refused(tmp_path: Path) -> None:
    """As docs/operation.md says of an HTTP request in flight."""
    repository = _sleeper(tmp_path / "models", 600)
    with (
        serving(repository, tmp_path / "log", "--exit-timeout-secs=600") as server,
        closing(HTTPConnection(server.http)) as kept,
        closing(HTTPConnection(server.http)) as new,
        grpc.insecure_channel(server.grpc) as channel,
        closing(_asking(server)),
    ):
        assert _live(kept)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "HTTP requests: 1" in server.log.read_text())
        with pytest.raises((RemoteDisconnected, ConnectionError)):
            _live(kept)
        with pytest.raises(ConnectionRefusedError):
            new.connect()
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive", bytes, bytes)
        with pytest.raises(grpc.RpcError, match="Server exiting") as refused:
            live(b"")
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert server.stop() == 1


@pytest.mark.parametrize(
    "half",
    [
        b"GET /v2 HTTP/1.1\r\n",
        b"POST /v2/repository/index HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{",
    ],
)
def test_half_an_http_request_does_not_hold_the_exit(
    tmp_path: Path, repository: Path, half: bytes
) -> None:
    with (
        serving(repository, tmp_path / "log", "--exit-timeout-secs=600") as server,
        socket.create_connection(("127.0.0.1", server.ports["http"])) as client,
        closing(HTTPConnection(server.http)) as other,
    ):
        client.sendall(half)
        assert _live(other)
        assert server.stop() == 0
        with closing(HTTPResponse(client)) as answer:
            answer.begin()
            assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
            assert json.loads(answer.read()) == {"error": "Server exiting"}


def test_a_stopped_reaper_does_not_hold_the_exit(tmp_path: Path) -> None:
    repository = _sleeper(tmp_path / "models", 0)
    with serving(repository, tmp_path / "log") as server:
        family = server.family()
        (reaper,) = (pid for pid in family if b"reap.py" in command_of(pid))
        suspend(reaper)
        assert server.stop() == 0
    wait_until(lambda: not any(map(alive, family)))


def test_nothing_in_flight_is_status_zero(repository: Path, tmp_path: Path) -> None:
    """Also where the exit is given no time at all."""
    with (
        serving(repository, tmp_path / "log", "--exit-timeout-secs=0") as server,
        closing(HTTPConnection(server.http)) as idle,
        grpc.insecure_channel(server.grpc) as channel,
    ):
        idle.request("GET", "/v2/health/live")
        assert idle.getresponse().read() == b'{"live":true}'
        channel.unary_unary("/inference.GRPCInferenceService/ServerLive", bytes, bytes)(b"")
        assert server.stop() == 0


@pytest.mark.contract("W-05")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_server_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    repository = _sleeper(tmp_path / "models", 600)
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    arguments = "--exit-timeout-secs=600", f"--grpc-address=unix:{folder}/grpc"
    with serving(repository, tmp_path / "log", *arguments) as server, closing(_asking(server)):
        family = server.family()
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "Waiting for in-flight" in server.log.read_text())
        assert server.stop(number, timeout=20) == 1
    assert len(family) >= 3  # the reaper, the model, and what that has started
    wait_until(lambda: not any(map(alive, family)))
    assert list(folder.iterdir()) == []


def test_a_second_signal_ends_a_start_too(tmp_path: Path) -> None:
    source = "import time\nprint('loading', flush=True)\ntime.sleep(600)\n"
    repository, log = tmp_path / "models", tmp_path / "log"
    write_python_model(repository, "slow", source)
    process = start(repository, log)
    wait_until(lambda: "loading\n" in log.read_text())
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) in (0, 1)


def test_a_hangup_opens_the_log_file_anew(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    log, old = tmp_path / "server.log", tmp_path / "server.log.1"
    with serving(tmp_path / "models", tmp_path / "out", f"--log-file={log}") as server:
        log.rename(old)
        server.process.send_signal(signal.SIGHUP)
        wait_until(log.exists)
        assert server.stop() == 0
    assert "Started HTTPService" in old.read_text()
    assert "Waiting for in-flight" in log.read_text()
    assert "Waiting for in-flight" not in old.read_text()
