"""A real server under load, seen by `penstock top` as users start it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from harness.serving import Served, serving, wait_until

pytestmark = pytest.mark.slow

MODEL = """\
from penstock.model import DataType, Input, Model, ModelConfig, Output, Response


class Doubler(Model):
    config = ModelConfig(
        input=(Input("X", DataType.FP32, dims=(-1,)),),
        output=(Output("Y", DataType.FP32, dims=(-1,)),),
    )

    async def infer(self, request):
        if request["X"][0] < 0:
            raise ValueError("below zero")
        return Response({"Y": request["X"] * 2})
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("top")
    (folder / "doubler.py").write_text(MODEL)
    with serving(None, folder / "log.txt", str(folder / "doubler.py")) as server:
        yield server


def _infer(server: Served, value: float) -> None:
    tensor = {"name": "X", "datatype": "FP32", "shape": [1], "data": [value]}
    body = json.dumps({"inputs": [tensor]}).encode()
    try:
        urlopen(Request(f"http://{server.http}/v2/models/doubler/infer", body), timeout=60).close()
    except HTTPError as error:
        error.close()


@contextmanager
def _load(server: Served) -> Iterator[None]:
    """Requests one after another, of which every third fails."""
    stopped = threading.Event()

    def ask() -> None:
        while not stopped.is_set():
            for value in (1.0, 2.0, -1.0):
                _infer(server, value)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _top(server: Served, *arguments: str) -> str:
    metrics = server.metrics.removesuffix("/metrics")
    command = [sys.executable, "-m", "penstock", "top", "--url", metrics, "--http", server.http]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout


def _seen(server: Served) -> Any:
    return json.loads(_top(server, "--json", "--interval", "0.5"))


def test_a_load_is_seen(server: Served) -> None:
    with _load(server):
        found = _seen(server)
    (model,) = found["models"]
    assert (model["name"], model["state"], found["ready"]) == ("doubler", "READY", True)
    assert model["requests"] > 0
    assert model["errors"] > 0
    assert 0 < model["latency"] < 60
    assert 0 < model["batch"] <= 1  # executions that fail count, and their inferences do not
    assert [batch["rows"] for batch in model["details"]["batches"]] == [1]
    failures = {one["name"]: one["count"] for one in model["details"]["failures"]}
    assert failures["BACKEND"] > 0


def test_the_process_of_a_model_is_seen(server: Served) -> None:
    (process,) = _seen(server)["processes"]
    assert process["pid"] in server.family()
    assert (process["model"], process["up"], process["restarts"]) == ("doubler", True, 0)
    assert process["memory"] > 1 << 20
    table = _top(server, "--once", "--interval", "0.1")
    rows = [line.split() for line in table.splitlines()]
    assert ["doubler_0", "1", str(process["pid"])] in [row[:3] for row in rows]


def test_a_process_that_is_started_again_is_seen(server: Served) -> None:
    former = _seen(server)["processes"][0]
    os.kill(former["pid"], signal.SIGKILL)

    def again() -> bool:
        (process,) = _seen(server)["processes"]
        back = process["up"] and process["pid"] != former["pid"]
        return bool(back and process["restarts"] == former["restarts"] + 1)

    wait_until(again)
