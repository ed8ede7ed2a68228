"""Estimates beside what models take once they are loaded, on a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from harness.processes import processes_below, read_of
from harness.serving import Served, serving
from penstock import cli
from penstock.demo.onnx_graph import OnnxGraphBuilder

pytestmark = [pytest.mark.slow, pytest.mark.engine]

_PYTHON = """
class TritonPythonModel:
    def execute(self, requests):
        return []
"""
_TENSORS = """
input { name: "X" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }
"""


_MODELS = {
    "network": "onnxruntime",
    "halves": "onnxruntime",
    "ir": "openvino",
    "ir_of_halves": "openvino",
    "code": "python",
}
_ROW = {
    "inputs": [{"name": "x", "shape": [1, 1024], "datatype": "FP32", "data": [0.5] * 1024}],
}


def _network(version: Path, dtype: str = "float32") -> Path:
    """Products with random matrices: 30 of 4 MiB, or of 2."""
    random = np.random.default_rng(1)
    graph = OnnxGraphBuilder("random")
    state = graph.input("x", dtype, ("batch", 1024))
    for _ in range(30):
        matrix = random.standard_normal((1024, 1024), np.float32).astype(dtype)
        state = graph.op("MatMul", state, graph.weight(matrix))
    graph.output("y", state, dtype, ("batch", 1024))
    graph.save(version / "model.onnx")
    return version / "model.onnx"


def _converted(version: Path, network: Path, *, to_halves: bool) -> None:
    """The network as OpenVINO's IR."""
    openvino = pytest.importorskip("openvino")
    made = openvino.convert_model(str(network))
    openvino.save_model(made, str(version / "model.xml"), compress_to_fp16=to_halves)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("measured")
    for name, backend in _MODELS.items():
        (made / name / "1").mkdir(parents=True)
        more = _TENSORS if name == "code" else ""
        (made / name / "config.pbtxt").write_text(f'backend: "{backend}" {more}')
    network = _network(made / "network" / "1")
    _network(made / "halves" / "1", "float16")
    _converted(made / "ir" / "1", network, to_halves=False)
    _converted(made / "ir_of_halves" / "1", network, to_halves=True)
    (made / "code" / "1" / "model.py").write_text(_PYTHON)
    return made


@pytest.fixture
def server(repository: Path, tmp_path: Path) -> Iterator[Served]:
    """A server that has loaded no engine yet."""
    with serving(repository, tmp_path / "log", "--model-control-mode=explicit") as served:
        yield served


def _memory(server: Served) -> int:
    """The proportional set size of the server and all processes below it."""
    root = server.process.pid
    texts = (read_of(pid, "smaps_rollup").decode() for pid in (root, *processes_below(root)))
    lines = (line for text in texts for line in text.splitlines() if line.startswith("Pss:"))
    return sum(int(line.split()[1]) * 1024 for line in lines)


@pytest.mark.parametrize("name", _MODELS)
def test_an_estimate_is_near_what_a_loaded_model_takes(
    name: str, repository: Path, server: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within a third, as far as small models and a busy machine tell."""
    cli.main(["plan", str(repository), name, "--format=json"])
    plan = json.loads(capsys.readouterr().out)
    cli.main(["plan", "--also=nothing=1", "--format=json"])
    bare = json.loads(capsys.readouterr().out)["server"]["host"]["sum"]
    before = _memory(server)
    url = f"http://{server.http}/v2/repository/models/{name}/load"
    assert httpx.post(url, timeout=60).status_code == 200
    if name.startswith("ir"):  # OpenVINO packs weights for the first request
        answer = httpx.post(f"http://{server.http}/v2/models/{name}/infer", json=_ROW, timeout=60)
        assert answer.status_code == 200
    measured = _memory(server) - before
    assert plan["devices"]["host"]["needed"] - bare == pytest.approx(measured, rel=0.33)
