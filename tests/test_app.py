"""How the process ends when what it serves does not."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path

import pytest

from serving import Served, serving, wait_until

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


def test_a_thread_that_hangs_does_not_keep_the_process(repository: Path, tmp_path: Path) -> None:
    with serving(repository, tmp_path / "log", "--exit-timeout-secs=1") as server:
        _ask_in_vain(server)
        wait_until(lambda: "hanging\n" in server.log.read_text())
        assert server.stop(signal.SIGTERM, timeout=20) == 0
        last = server.log.read_text().splitlines()[-1]
        assert last.endswith('"Exit timeout expired. Exiting immediately."')


def _ask_in_vain(server: Served) -> None:
    """A request whose answer nobody waits for."""
    tensor = {"name": "X", "datatype": "INT32", "shape": [1], "data": [1]}
    body = json.dumps({"inputs": [tensor]}).encode()
    url = f"http://{server.http}/v2/models/hanging/infer"
    with pytest.raises(TimeoutError):
        urllib.request.urlopen(url, body, timeout=0.5)
