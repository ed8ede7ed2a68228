"""Files that came with a request, on a real server that dies, or whose model process does."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from harness.serving import Served, serving, wait_until

_MODEL = """\
import os
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        values = [pb_utils.get_input_tensor_by_name(r, "IN").as_numpy() for r in requests]
        pid = os.getpid()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", v + pid)]) for v in values]
"""
_TENSOR = {"data_type": "TYPE_INT64", "dims": [1]}
_CONFIG = {
    "backend": "python",
    "input": [{"name": "IN", **_TENSOR}],
    "output": [{"name": "OUT", **_TENSOR}],
}


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the server has its temporary files."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    return tmp_path / "scratch"


@pytest.fixture
def server(tmp_path: Path, scratch: Path) -> Iterator[Served]:
    (tmp_path / "models").mkdir()
    control = "--model-control-mode=explicit", "--allow-model-upload=true"
    with serving(tmp_path / "models", tmp_path / "log", *control) as served:
        yield served


@pytest.fixture
def client(server: Served) -> Iterator[Any]:
    """Of a server with a model whose files came with the request."""
    with grpcclient.InferenceServerClient(server.grpc) as client:
        files = {"file:1/model.py": _MODEL.encode()}
        client.load_model("m", config=json.dumps(_CONFIG), files=files)
        yield client


def _pid(client: Any) -> int | None:
    """The model process, while there is one."""
    tensor = grpcclient.InferInput("IN", [1], "INT64")
    tensor.set_data_from_numpy(np.zeros(1, np.int64))
    try:
        return int(client.infer("m", [tensor]).as_numpy("OUT")[0])
    except InferenceServerException:
        return None


def _left(scratch: Path) -> list[str]:
    """Files and folders, some of which may go while they are listed."""
    return [name for _, folders, files in os.walk(scratch) for name in (*folders, *files)]


@pytest.mark.contract("X-18")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_they_go_with_the_server(
    server: Served, client: Any, scratch: Path, number: signal.Signals
) -> None:
    pid = _pid(client)
    assert "model.py" in _left(scratch)
    server.stop(number)
    wait_until(lambda: not _left(scratch))
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.contract("X-18")
def test_they_stay_for_the_next_model_process_and_go_with_the_model(
    client: Any, scratch: Path
) -> None:
    former = _pid(client)
    assert former is not None
    os.kill(former, signal.SIGKILL)
    wait_until(lambda: _pid(client) not in (None, former))
    client.unload_model("m")
    wait_until(lambda: "model.py" not in _left(scratch))
