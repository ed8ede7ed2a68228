"""The process exits even if a model or a reader of its output hangs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from harness.serving import Served, serving, wait_until

pytestmark = pytest.mark.slow

_BACKEND = '''
import threading

from penstock.core.backend import Backend


class Hanging(Backend):
    """Waits for ever on the thread of its instance."""

    async def initialize(self, context):
        self.context = context

    async def execute(self, requests):
        print("hanging", flush=True)
        await self.context.run(threading.Event().wait)
'''
_CONFIG = 'backend: "hanging" input { name: "X" data_type: TYPE_INT32 dims: 1 }'
_OUTPUT = ' output { name: "Y" data_type: TYPE_INT32 dims: 1 }'


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a model that hangs, whose backend is installed for processes started here."""
    site = tmp_path / "site"
    info = site / "hanging-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "hanging.py").write_text(_BACKEND)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hanging\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[penstock.backends]\nhanging = hanging:Hanging\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    (tmp_path / "models" / "hanging" / "1").mkdir(parents=True)
    (tmp_path / "models" / "hanging" / "config.pbtxt").write_text(_CONFIG + _OUTPUT)
    return tmp_path / "models"


@pytest.mark.contract("W-06", "W-09")
def test_a_thread_that_hangs_does_not_keep_the_process(repository: Path, tmp_path: Path) -> None:
    with serving(repository, tmp_path / "log", "--exit-timeout-secs=1") as server:
        with closing(_asking(server)):
            wait_until(lambda: "hanging\n" in server.log.read_text())
            assert server.stop(signal.SIGTERM) == 1
        log = server.log.read_text()
        assert "\"In flight: model 'hanging' version 1: 1\"" in log
        last = log.splitlines()[-1]
        assert last.endswith('"Exit timeout expired. Exiting immediately."')


def _asking(server: Served) -> HTTPConnection:
    """A connection with a request that is never answered."""
    tensor = {"name": "X", "datatype": "INT32", "shape": [1], "data": [1]}
    connection = HTTPConnection(server.http)
    connection.request("POST", "/v2/models/hanging/infer", json.dumps({"inputs": [tensor]}))
    return connection


def test_a_closed_output_does_not_stop_the_server(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    command = [sys.executable, "-m", "penstock", "serve", f"--model-repository={tmp_path}/models"]
    command += ["--grpc-port=0", "--http-port=0", "--metrics-port=0"]
    command += ["--grpc-address=127.0.0.1", "--http-address=127.0.0.1"]  # else it warns
    with (tmp_path / "errors").open("wb") as errors:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
    assert server.stdout is not None
    try:
        assert any(b"Started HTTPService" in line for line in server.stdout)
        server.stdout.close()
        server.send_signal(signal.SIGTERM)
        assert server.wait(40) == 0
    finally:
        server.kill()
        server.wait()
    assert (tmp_path / "errors").read_text() == ""


def test_unwritable_output_does_not_keep_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    code = "import sys; from penstock.telemetry.console import end_process"
    code += "; print('x'); end_process(0)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 0


def test_the_server_starts_without_standard_files(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    log = tmp_path / "log"
    command = [sys.executable, "-m", "penstock", "serve", f"--model-repository={tmp_path}/models"]
    command += ["--grpc-port=0", "--http-port=0", "--metrics-port=0", f"--log-file={log}"]
    server = subprocess.Popen(["/bin/sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', *command])
    wait_until(lambda: log.exists() and "Started HTTPService" in log.read_text())
    server.send_signal(signal.SIGTERM)
    assert server.wait(40) == 0


_SEQUENCES = """
backend: "identity" max_batch_size: 4
input { name: "X" data_type: TYPE_INT32 dims: 1 }
output { name: "Y" data_type: TYPE_INT32 dims: 1 }
sequence_batching { max_sequence_idle_microseconds: 60000000 control_input { name: "START" control {
    kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } } }
"""


@pytest.mark.contract("S-22", "W-08")
def test_a_sequence_may_come_to_its_end_after_the_signal(tmp_path: Path) -> None:
    (tmp_path / "models" / "steps" / "1").mkdir(parents=True)
    (tmp_path / "models" / "steps" / "config.pbtxt").write_text(_SEQUENCES)
    with serving(tmp_path / "models", tmp_path / "log") as server:
        assert _step(server, 1, sequence_start=True) == 200
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "Waiting for sequences of steps to end." in server.log.read_text())
        assert _step(server, 1) == 200
        assert _step(server, 2, sequence_start=True) == 503
        assert _step(server, 1, sequence_end=True) == 200
        assert server.process.wait(20) == 0


def _step(server: Served, sequence: int, **flags: bool) -> int:
    """The status of a request of a sequence."""
    tensor = {"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [1]}
    body = {"inputs": [tensor], "parameters": {"sequence_id": sequence, **flags}}
    url = f"http://{server.http}/v2/models/steps/infer"
    try:
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
