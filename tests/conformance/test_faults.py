"""What becomes of a real server, and of its clients, when something goes wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from harness.processes import command_of
from harness.serving import Served, alive, serving, start, wait_until

_CHAT = Path(__file__).with_name("chat.py")
_LONG = {"max_tokens": 900, "temperature": 0, "ignore_eos": True}


@pytest.fixture
def small(demo: Path, tmp_path: Path) -> Path:
    """A repository with the language model and `simple` only."""
    for name in ("tiny_llm", "simple"):
        shutil.copytree(demo / name, tmp_path / "models" / name)
    return tmp_path / "models"


@pytest.fixture
def simple(demo: Path, tmp_path: Path) -> Path:
    """A repository with `simple`, and with a copy of it, `other`: both start at once."""
    for name in ("simple", "other"):
        shutil.copytree(demo / "simple", tmp_path / "models" / name)
    config = tmp_path / "models" / "other" / "config.pbtxt"
    config.write_text(config.read_text().replace('"simple"', '"other"'))
    return tmp_path / "models"


def chatting(server: Served, *requests: dict[str, Any]) -> subprocess.Popen[str]:
    """Requests to the language model, under way in another process."""
    command = [sys.executable, str(_CHAT), server.grpc, json.dumps(requests)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result_of(chat: subprocess.Popen[str]) -> dict[str, Any]:
    output, errors = chat.communicate(timeout=60)
    assert output, errors
    seen: dict[str, Any] = json.loads(output)
    return seen


def long_request(name: str) -> dict[str, Any]:
    return {"id": name, "prompt": "The file is", "sampling": _LONG}


def status_of(server: Served, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{server.http}{path}", timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def generating(server: Served) -> bool:
    page = urllib.request.urlopen(server.metrics, timeout=60).read().decode()
    return 'running_requests{model="tiny_llm",version="1"} 0\n' not in page


def engine_process(server: Served) -> int:
    """The model process of the language model."""
    return next(pid for pid in server.family() if b"bootstrap.py" in command_of(pid))


@pytest.mark.contract("W-10")
def test_a_killed_engine_fails_its_requests_with_the_reason_and_comes_back(
    small: Path, tmp_path: Path
) -> None:
    with serving(small, tmp_path / "log") as server:
        chat = chatting(server, long_request("a"), long_request("b"))
        wait_until(lambda: generating(server))
        os.kill(engine_process(server), signal.SIGKILL)
        seen = result_of(chat)
        assert all("killed by signal 9 (SIGKILL)" in s["error"] for s in seen.values())
        assert status_of(server, "/v2/models/simple/ready") == 200
        wait_until(lambda: status_of(server, "/v2/models/tiny_llm/ready") == 200)
        short = {**long_request("c"), "sampling": {**_LONG, "max_tokens": 4}}
        assert result_of(chatting(server, short))["c"]["error"] is None


def test_nothing_outlives_a_killed_server(small: Path, tmp_path: Path) -> None:
    with serving(small, tmp_path / "log") as server:
        family = server.family()
        assert len(family) >= 2
        server.stop(signal.SIGKILL)
        wait_until(lambda: not any(map(alive, family)))


@pytest.mark.contract("W-05", "W-06", "W-09")
def test_sigterm_lets_a_running_stream_finish(small: Path, tmp_path: Path) -> None:
    with serving(small, tmp_path / "log") as server:
        family = server.family()
        chat = chatting(server, long_request("a"))
        wait_until(lambda: generating(server))
        assert server.stop() == 0
        seen = result_of(chat)["a"]
        assert seen["error"] is None
        assert seen["final"]
        assert "Signal (15) received." in server.log.read_text()
        assert not any(map(alive, family))


@pytest.mark.contract("CL-04", "W-06")
def test_a_stream_that_outlasts_the_exit_timeout_does_not_hold_the_server(
    small: Path, tmp_path: Path
) -> None:
    with serving(small, tmp_path / "log", "--exit-timeout-secs=1") as server:
        slow = [long_request(str(n)) for n in range(60)]
        chat = chatting(server, *slow)
        wait_until(lambda: generating(server))
        assert server.stop(timeout=25) == 1  # it was cut off
        chat.communicate(timeout=60)


@pytest.mark.contract("GT-02", "W-09")
def test_a_port_in_use_ends_the_start_with_a_clear_line(simple: Path, tmp_path: Path) -> None:
    with serving(simple, tmp_path / "log") as server:
        second = {
            name: start(simple, tmp_path / name, f"--{name}-port={port}")
            for name, port in server.ports.items()
        }
        assert [process.wait(60) for process in second.values()] == [1, 1, 1]
        for name, port in server.ports.items():
            assert str(port) in (tmp_path / name).read_text().splitlines()[-1]


@pytest.mark.contract("M-04", "CL-07", "W-09")
def test_a_model_that_cannot_be_loaded_ends_the_start(simple: Path, tmp_path: Path) -> None:
    (simple / "simple" / "config.pbtxt").write_text('name: "simple"\nmax_batch_size: many\n')
    process = start(simple, tmp_path / "log")
    assert process.wait(60) == 1
    *_, error, reason = (tmp_path / "log").read_text().splitlines()
    assert error == "error: creating server: Internal - failed to load all models"
    assert reason.startswith(f"{simple / 'simple'}: Internal: ")
    assert "config.pbtxt:2:17" in reason


@pytest.mark.contract("M-04", "M-14", "M-18", "CL-07")
def test_without_exit_on_error_the_others_serve(simple: Path, tmp_path: Path) -> None:
    shutil.rmtree(simple / "simple" / "1")
    with serving(simple, tmp_path / "log", "--exit-on-error=false") as server:
        assert status_of(server, "/v2/models/other/ready") == 200
        assert status_of(server, "/v2/models/simple/ready") == 400
    log = (tmp_path / "log").read_text()
    assert "failed to load model 'simple': at least one version must be available" in log
    assert re.search(r"^\| simple +\| - +\| Not loaded: No model version was found \|$", log, re.M)


def test_an_unsupported_field_is_refused_by_name(simple: Path, tmp_path: Path) -> None:
    config = simple / "simple" / "config.pbtxt"
    config.write_text(config.read_text() + '\ncc_model_filenames { key: "7.5" value: "x" }\n')
    process = start(simple, tmp_path / "log")
    assert process.wait(60) == 1
    assert "cc_model_filenames" in (tmp_path / "log").read_text()


_IDLE = """
import queue, sys, numpy as np, tritonclient.grpc as grpcclient
answers = queue.Queue()
client = grpcclient.InferenceServerClient(sys.argv[1])
client.start_stream(callback=lambda result, error: answers.put((result, error)))
inputs = [grpcclient.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
for tensor in inputs:
    tensor.set_data_from_numpy(np.ones((1, 16), np.int32))
client.async_stream_infer("simple", inputs)
assert answers.get()[1] is None
print("idle", flush=True)
print(answers.get()[1], flush=True)
"""


def test_an_idle_stream_does_not_hold_the_server(simple: Path, tmp_path: Path) -> None:
    with serving(simple, tmp_path / "log") as server:
        command = [sys.executable, "-c", _IDLE, server.grpc]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert client.stdout is not None
        assert client.stdout.readline() == "idle\n"
        assert server.stop(timeout=25) == 0
        assert "has stopped accepting new requests" in client.stdout.readline()
        client.kill()
        client.wait()
        client.stdout.close()
