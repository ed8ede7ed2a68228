"""What is left when the server ends, and what its clients are told."""

from __future__ import annotations

import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.python_models.client import Client, floats
from conformance.python_models.faults.models import EXPLICIT, FAULTY, Victim, faulty
from conformance.python_models.repository import PythonModel, write_models
from harness.serving import Served, alive, serving, wait_until

MODELS = faulty("victim")
ARGUMENTS = EXPLICIT

_HANGING = """
    import pathlib
    import subprocess
    import time


    class TritonPythonModel:
        @staticmethod
        def auto_complete_config(config):
            daemon = subprocess.Popen(["sleep", "1000"], start_new_session=True)
            pathlib.Path(__file__).with_name("new").write_text(str(daemon.pid))
            pathlib.Path(__file__).with_name("new").rename(pathlib.Path(__file__).with_name("pid"))
            time.sleep(1000)

        def execute(self, requests):
            return []
"""


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[tuple[Served, list[int]]]:
    """A server whose models are busy in every way, and all processes that hang on it."""
    models = {
        "loop": FAULTY["victim"],
        "parent": FAULTY["victim"],
        "streamer": FAULTY["streamer"],
        "hanging": PythonModel(_HANGING, config=None),
    }
    repository = write_models(tmp_path / "models", models)
    arguments = "--model-control-mode=explicit", "--exit-timeout-secs=1"
    with serving(repository, tmp_path / "log", *arguments) as server, Client(server.grpc) as client:
        for name in ("loop", "parent", "streamer"):
            client.load(name)
        children = client.infer("parent", request_id="has_children")["Y"].astype(int).tolist()
        client.begin("loop", request_id="waits")
        client.begin_load("hanging")
        wait_until((repository / "loop" / "waiting").exists)
        daemon = repository / "hanging" / "1" / "pid"
        wait_until(daemon.exists)
        client.stream("streamer").result()  # from here on it takes all that the others leave
        yield server, [*server.family(), *children, int(daemon.read_text())]


def test_nothing_outlives_a_server_that_is_killed(doomed: tuple[Served, list[int]]) -> None:
    server, family = doomed
    assert all(map(alive, family))
    server.stop(signal.SIGKILL)
    wait_until(lambda: not any(map(alive, family)))


def test_nothing_outlives_a_server_that_stops(doomed: tuple[Served, list[int]]) -> None:
    server, family = doomed
    assert server.stop() == 1  # the exit timeout has cut requests off
    wait_until(lambda: not any(map(alive, family)))


def test_shared_memory_has_no_name(client: Client, server: Served, victim: Victim) -> None:
    client.infer("witness", {"X": floats(*range(1 << 16))})
    for pid in (server.process.pid, victim.pid()):
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert "memfd:penstock-arena (deleted)" in maps
        assert "/dev/shm" not in maps


def test_http_clients_are_told_as_well(server: Served, victim: Victim) -> None:
    victim.hold()
    body = (
        b'{"id": "exits", "inputs": [{"name": "X", "datatype": "FP32", "shape": [1], "data": [1]}]}'
    )
    url = f"http://{server.http}/v2/models/victim/infer"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, data=body, timeout=30)
    assert refused.value.code == 503
    assert "exited with status 3; it is being restarted" in refused.value.read().decode()
    victim.release()
