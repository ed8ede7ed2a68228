"""The start: what the ports answer before the models are loaded, and how a start fails."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from app.python_models import write_python_model
from harness.serving import serving, start, wait_until
from penstock.protocol import grpc_service_pb2 as pb

pytestmark = pytest.mark.slow

_SLOW = """
import time
from pathlib import Path


class TritonPythonModel:
    def initialize(self, args):
        while not Path(args["model_repository"], "go").exists():
            time.sleep(0.02)

    def execute(self, requests):
        return []
"""
_BROKEN = """
class TritonPythonModel:
    def initialize(self, args):
        raise RuntimeError("no weights")
"""

_ENSEMBLE = """
platform: "ensemble"
input { name: "X" data_type: TYPE_INT32 dims: 1 }
output { name: "Y" data_type: TYPE_INT32 dims: 1 }
ensemble_scheduling { step { model_name: "broken" model_version: -1
    input_map { key: "X" value: "X" } output_map { key: "X" value: "Y" } } }
"""


_SERVICE = "/inference.GRPCInferenceService/"


class Loading:
    """A server whose model waits before it is loaded."""

    def __init__(self, folder: Path, log: Path, *arguments: str) -> None:
        self.folder, self.log = folder, log
        self.process = start(folder.parent, log, *arguments)

    def port(self, service: str) -> int:
        """Where a service listens while models are loaded."""
        line = re.compile(rf"{service} listens at \S+:(\d+)")
        wait_until(lambda: line.search(self.log.read_text()) is not None)
        found = line.search(self.log.read_text())
        assert found is not None
        return int(found[1])

    def get(self, path: str) -> int:
        """The status of an answer over HTTP."""
        return _status(f"http://127.0.0.1:{self.port('HTTPService')}{path}")


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture
def loading(tmp_path: Path) -> Iterator[Loading]:
    server = Loading(write_python_model(tmp_path / "models", "slow", _SLOW), tmp_path / "log")
    try:
        yield server
    finally:
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0


@pytest.mark.contract("W-01", "H-02", "H-03", "W-11")
def test_http_answers_health_while_models_load(loading: Loading) -> None:
    wait_until(lambda: "loading: slow" in loading.log.read_text())
    paths = "/v2/health/live", "/v2/health/ready", "/v2/models/slow/ready", "/v2/models/slow/config"
    assert [loading.get(path) for path in paths] == [200, 400, 400, 503]
    assert "Started HTTPService" not in loading.log.read_text()
    (loading.folder / "go").touch()
    wait_until(lambda: "Started HTTPService" in loading.log.read_text())
    assert [loading.get(path) for path in paths] == [200, 200, 200, 200]


@pytest.mark.contract("W-01", "G-01", "G-02")
def test_grpc_answers_health_while_models_load(loading: Loading) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{loading.port('GRPCInferenceService')}") as channel:

        def call(method: str, request: bytes = b"") -> bytes:
            return bytes(channel.unary_unary(_SERVICE + method, bytes, bytes)(request, timeout=60))

        assert pb.ServerLiveResponse.FromString(call("ServerLive")).live
        assert not pb.ServerReadyResponse.FromString(call("ServerReady")).ready
        with pytest.raises(grpc.RpcError) as refused:
            call("ModelInfer", pb.ModelInferRequest(model_name="slow").SerializeToString())
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert refused.value.details() == "Server not ready"


@pytest.mark.contract("H-02", "H-03", "G-01", "G-02")
@pytest.mark.parametrize("mode", ["none", "explicit", "poll"])
def test_a_server_without_its_repository_answers_that_it_is_neither_live_nor_ready(
    tmp_path: Path, mode: str
) -> None:
    options = "--exit-on-error=false", f"--model-control-mode={mode}"
    with serving(tmp_path / "missing", tmp_path / "log", *options) as server:
        paths = "/v2/health/live", "/v2/health/ready", "/v2/models/m"
        assert [_status(f"http://{server.http}{path}") for path in paths] == [400, 400, 503]
        with grpc.insecure_channel(server.grpc) as channel:
            live = channel.unary_unary(_SERVICE + "ServerLive", bytes, bytes)
            assert not pb.ServerLiveResponse.FromString(live(b"", timeout=60)).live
        assert f"failed to stat file {tmp_path}/missing" in server.log.read_text()


def test_metrics_are_there_while_models_load(loading: Loading) -> None:
    url = f"http://127.0.0.1:{loading.port('Metrics Service')}/metrics"
    with urllib.request.urlopen(url, timeout=60) as reply:
        assert "nv_cpu_memory_total_bytes" in reply.read().decode()


@pytest.mark.contract("H-31")
def test_a_shared_port_is_opened_when_the_server_is_ready(tmp_path: Path) -> None:
    """Clients of the servers that share it would else reach one that is not."""
    folder = write_python_model(tmp_path / "models", "slow", _SLOW)
    server = Loading(folder, tmp_path / "log", "--reuse-http-port=true")
    try:
        server.port("Metrics Service")
        assert "HTTPService listens" not in server.log.read_text()
        (folder / "go").touch()
        wait_until(lambda: "Started HTTPService" in server.log.read_text())
    finally:
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0


def failed(repository: Path, log: Path, *arguments: str) -> list[str]:
    """What a server that does not start prints."""
    process = start(repository, log, *arguments)
    try:
        assert process.wait(60) == 1
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return log.read_text().splitlines()


@pytest.mark.contract("CL-07")
def test_the_last_lines_of_a_failed_start_name_models_and_reasons(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    broken, other = (
        write_python_model(repository, "broken", _BROKEN),
        write_python_model(repository, "other", "import nope"),
    )
    (other / "config.pbtxt").write_text("nope: 3")
    lines = failed(repository, tmp_path / "log")
    assert any("with --exit-on-error=false it serves the other models" in line for line in lines)
    assert lines[-3] == "error: creating server: Internal - failed to load all models"
    assert lines[-2] == (
        f"{broken}: version 1 is at UNAVAILABLE state: Internal: RuntimeError: no weights "
        f"(at {broken}/1/model.py(4): initialize);"
    )
    assert lines[-1].startswith(f"{other}: Internal: failed to read text proto from {other}/")
    for name in ("broken", "other"):  # errors are logged once
        assert sum(line.startswith("E") and f"'{name}'" in line for line in lines) == 1


@pytest.mark.contract("CL-12")
def test_an_error_is_logged_once_however_a_load_comes_to_it(tmp_path: Path) -> None:
    """The model is read as one that an ensemble needs, and once more with it."""
    broken = write_python_model(tmp_path / "models", "broken", "")
    (broken / "config.pbtxt").write_text("nope: 3")
    (tmp_path / "models" / "ensemble" / "1").mkdir(parents=True)
    (tmp_path / "models" / "ensemble" / "config.pbtxt").write_text(_ENSEMBLE)
    arguments = "--model-control-mode=explicit", "--load-model=ensemble"
    lines = failed(tmp_path / "models", tmp_path / "log", *arguments)
    assert sum("Poll failed" in line for line in lines) == 1
    assert lines[-1] == (
        "error: creating server: Invalid argument - load failed for model 'ensemble': ensemble "
        "ensemble contains models that are not available or ambiguous: broken"
    )


@pytest.mark.contract("CL-12")
def test_a_model_asked_for_by_name_has_its_reason_and_code_in_the_last_line(tmp_path: Path) -> None:
    folder = write_python_model(tmp_path / "models", "broken", _BROKEN)
    arguments = "--model-control-mode=explicit", "--load-model=broken"
    assert failed(folder.parent, tmp_path / "log", *arguments)[-1] == (
        "error: creating server: Invalid argument - load failed for model 'broken': version 1 is "
        "at UNAVAILABLE state: Internal: RuntimeError: no weights "
        f"(at {folder}/1/model.py(4): initialize);"
    )


def test_a_weight_of_a_tenant_that_is_negative_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    file = tmp_path / "tenants.json"
    file.write_text('{"tenants": {"search": {"weight": -2}}}')
    assert failed(tmp_path / "models", tmp_path / "log", f"--tenants={file}")[-1] == (
        f"error: creating server: Invalid argument - tenants in '{file}': "
        "'tenants.search.weight' must be a number from 1e-06 to 1e+06, got -2"
    )


@pytest.mark.parametrize("service", ["HTTP", "GRPC", "Metrics"])
def test_a_port_in_use_names_its_service(tmp_path: Path, service: str) -> None:
    (tmp_path / "models").mkdir()
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        option = f"--{service.lower()}-port={port}"
        last = failed(tmp_path / "models", tmp_path / "log", option)[-1]
    problem = f"Unavailable - Socket '0.0.0.0:{port}' already in use"
    assert last.rstrip() == f"error: failed to start {service} service: {problem}"


@pytest.mark.slow
@pytest.mark.contract("MA-16")
def test_a_server_can_be_followed_by_another_on_its_port_at_once(tmp_path: Path) -> None:
    """Though connections of clients were open when it ended."""
    (tmp_path / "models").mkdir()
    own = "--http-address=127.0.0.77"  # where no client's connection has its port
    with serving(tmp_path / "models", tmp_path / "first", own) as first:
        client = http.client.HTTPConnection("127.0.0.77", first.ports["http"], timeout=60)
        client.request("GET", "/v2/health/live")
        assert client.getresponse().status == 200
        assert first.stop() == 0
    same = f"--http-port={first.ports['http']}"
    with serving(tmp_path / "models", tmp_path / "second", own, same) as second:
        assert second.ports["http"] == first.ports["http"]
    client.close()


@pytest.mark.contract("CL-32", "CL-33", "CLD-01", "CLD-05")
def test_cloud_endpoints_have_ports_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With only the variables that Vertex AI sets, and SageMaker beside it."""
    (tmp_path / "models" / "only" / "1").mkdir(parents=True)
    config = 'backend: "identity" input { name: "X" data_type: TYPE_INT32 dims: 1 }'
    (tmp_path / "models" / "only" / "config.pbtxt").write_text(
        config + ' output { name: "Y" data_type: TYPE_INT32 dims: 1 }'
    )
    known = {"AIP_MODE": "PREDICTION", "AIP_HEALTH_ROUTE": "/health", "AIP_PREDICT_ROUTE": "/p"}
    for name, value in {**known, "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "only"}.items():
        monkeypatch.setenv(name, value)
    flags = ("--allow-sagemaker=true", "--sagemaker-port=0", "--vertex-ai-port=0")
    log = tmp_path / "log"
    process = start(tmp_path / "models", log, *flags)
    try:
        wait_until(lambda: "Started Vertex AI HTTPService at " in log.read_text())
        found = re.findall(r"Started (.+) HTTPService at 0.0.0.0:(\d+)", log.read_text())
        vertex, sagemaker = dict(found)["Vertex AI"], dict(found)["Sagemaker"]
        assert "8080" not in {vertex, sagemaker}  # which is the default of both
        body = b'{"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [7]}]}'
        for path in (f"{vertex}/p", f"{sagemaker}/invocations"):
            with urllib.request.urlopen(f"http://127.0.0.1:{path}", body) as answer:
                assert b'"data":[7]' in answer.read()
        for path in (f"{vertex}/health", f"{sagemaker}/ping"):
            with urllib.request.urlopen(f"http://127.0.0.1:{path}") as answer:
                assert answer.status == 200
        assert "Started HTTPService" not in log.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0
