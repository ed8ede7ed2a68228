"""What a server writes where, and what becomes of it when its disk is full."""

import json
import re
import resource
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from harness.serving import Served, serving, start, wait_until


def status(server: Served, path: str) -> int:
    with urllib.request.urlopen(f"http://{server.http}{path}", timeout=60) as reply:
        return int(reply.status)


@pytest.mark.slow
@pytest.mark.contract("L-05")
def test_a_full_disk_costs_lines_of_the_log_and_no_request(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    file, console = tmp_path / "log", tmp_path / "console"
    with serving(tmp_path / "models", console, f"--log-file={file}", "--log-verbose=1") as server:
        assert status(server, "/v2/health/live") == 200
        assert '"HTTP request: GET /v2/health/live"' in file.read_text()
        assert console.read_text() == ""
        room, most = len(file.read_bytes()), resource.RLIM_INFINITY
        # The console is a file too, and its one line is shorter than the log before.
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (room, most))
        for _ in range(50):
            assert status(server, "/v2/health/live") == 200
        [line] = console.read_text().splitlines()
        assert line.endswith(f"log file '{file}' is not writable: File too large; lost lines: 1\"")
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (most, most))
        assert status(server, "/v2/health/ready") == 200
    lines = file.read_bytes()[room:].decode().splitlines()
    assert "lines missing here: 50, since the file was not writable: File too large" in lines[0]
    assert lines[1].endswith('"HTTP request: GET /v2/health/ready"')
    assert len(console.read_text().splitlines()) == 2  # and the note of the signal


_MODEL = """
import os, sys
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        print("completing")
        return config

    def initialize(self, args):
        print("printed")
        print('{"json": "stays"}')
        print("wrong", file=sys.stderr)
        os.write(1, b"from C\\n")
        pb_utils.Logger.log_info("logged")
        pb_utils.Logger.log_error("logged error")

    def execute(self, requests):
        sys.stderr.write("last words")
        sys.stderr.flush()
        os.abort()
"""
_CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_INT32 dims: 1 }
output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
"""
_NAMES = "model=talk instance=talk_0"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "talk"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(_MODEL)
    (folder / "config.pbtxt").write_text(_CONFIG)
    return tmp_path / "models"


def crash(server: Served) -> None:
    """A request that ends the model's process; returns when the answer says so."""
    tensor = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}
    body = json.dumps({"inputs": [tensor]}).encode()
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"http://{server.http}/v2/models/talk/infer", body, timeout=60)


@pytest.mark.contract("L-01", "L-09")
@pytest.mark.slow
def test_streams_part_and_lines_of_a_model_name_it(models: Path, tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    with serving(models, out, errors=err) as server:
        crash(server)
        wait_until(lambda: "is back, pid" in out.read_text())
        assert server.stop() == 0
    printed, complained = out.read_text(), err.read_text()
    assert "[model=talk] completing" in printed.splitlines()
    for line in (f"[{_NAMES}] printed", f"[{_NAMES}] from C", '{"json": "stays"}'):
        assert printed.splitlines().count(line) == 2  # the process was started again
    for line in (f"[{_NAMES}] wrong", f"[{_NAMES}] last words"):
        assert line in complained.splitlines()
    assert re.search(rf'^I.* model\.py:\d+\] "logged" {_NAMES}$', printed, re.MULTILINE)
    assert re.search(rf'^E.* model\.py:\d+\] "logged error" {_NAMES}$', complained, re.MULTILINE)
    assert re.search(rf"^E.*SIGABRT.* {_NAMES}$", complained, re.MULTILINE)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.slow
def test_one_stream_takes_everything(stream: str, models: Path, tmp_path: Path) -> None:
    files = {"stdout": tmp_path / "out", "stderr": tmp_path / "err"}
    arguments = (f"--log-stream={stream}",)
    process = start(models, files["stdout"], *arguments, errors=files["stderr"])
    used = files.pop(stream)
    try:
        wait_until(lambda: used.exists() and "Started Metrics Service" in used.read_text())
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    text = used.read_text()
    for part in ("] printed", "] wrong", '"logged"', '"logged error"', "Signal (15) received."):
        assert part in text
    assert [other.read_text() for other in files.values()] == [""]


_ASYNCIO = """
from penstock.model import DataType, Input, Model, ModelConfig

class Mine(Model):
    config = ModelConfig(input=[Input("IN", DataType.FP32, dims=(1,))])
"""
_FAILING = """
class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("no weights")
"""
_SILENT = """
class TritonPythonModel:
    def execute(self, requests):
        return []
"""
_MISSPELT = 'parameters { key: "penstock.hots" value: { string_value: "process" } }'


def write(models: Path, name: str, code: str, config: str = 'backend: "python"') -> None:
    (models / name / "1").mkdir(parents=True)
    (models / name / "1" / "model.py").write_text(code)
    (models / name / "config.pbtxt").write_text(config)


@pytest.mark.contract("M-18")
@pytest.mark.slow
def test_why_a_load_failed_is_an_error_once(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write(models, "typed", _ASYNCIO)
    write(models, "failing", _FAILING, _CONFIG)
    write(models, "silent", _SILENT)
    write(models, "misspelt", _SILENT, _CONFIG + _MISSPELT)
    out, err = tmp_path / "out", tmp_path / "err"
    arguments = ("--exit-on-error=false", "--strict-readiness=false")
    with serving(models, out, *arguments, errors=err) as server:
        assert server.stop() == 0
    text = err.read_text()
    path = models / "typed" / "1" / "model.py"
    for reason in (
        f"ModelConfig: input must be a tuple of Input, not a list ({path}, line 5)",
        'Internal: ValueError: no weights"\n    At:\n',
        "'penstock.hots' is not a parameter that Penstock knows; did you mean 'penstock.host'?",
    ):
        assert text.count(reason) == 1, text
        assert re.search(rf"^E.*{re.escape(reason)}", text, re.MULTILINE)
    assert re.search("^W.*model 'silent' declares no inputs and outputs", text, re.MULTILINE)
    assert "successfully loaded 'silent'" in out.read_text()


def change(server: Served, **settings: object) -> None:
    """Change settings of the log."""
    body = json.dumps(settings).encode()
    with urllib.request.urlopen(f"http://{server.http}/v2/logging", body, timeout=60) as reply:
        assert reply.status == 200


@pytest.mark.slow
@pytest.mark.contract("L-06", "L-09")
def test_every_line_of_a_server_is_json_until_that_is_changed(models: Path, tmp_path: Path) -> None:
    file = tmp_path / "log"
    flags = (
        f"--log-file={file}",
        "--log-format=json",
        "--log-verbose=1",
        "--allow-log-control=true",
    )
    with serving(models, tmp_path / "console", *flags) as server:
        crash(server)
        wait_until(lambda: "is back, pid" in file.read_text())
        change(server, log_format="ISO8601")
        status(server, "/v2/health/live")
        text = file.read_text()
        change(server, log_format="json")
        status(server, "/v2/health/ready")
        last = file.read_text().splitlines()[-1]
    lines = text.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.endswith('/health/live"')]
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ I ", lines[at])
    records = [json.loads(line) for line in lines[:at]]
    assert {"time", "level", "file", "line", "pid", "logger", "message"} <= set(records[0])
    logged = [one for one in records if one["message"] == "logged error"]
    assert [(one["level"], one["file"], one["model"], one["instance"]) for one in logged] == [
        ("ERROR", "model.py", "talk", "talk_0")
    ] * 2  # the process was started again
    assert json.loads(last)["message"] == "HTTP request: GET /v2/health/ready"
