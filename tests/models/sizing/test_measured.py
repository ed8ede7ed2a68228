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


def _network(version: Path) -> None:
    """Products with random matrices: 10 of 4 MiB."""
    random = np.random.default_rng(1)
    graph = OnnxGraphBuilder("random")
    state = graph.input("x", "float32", ("batch", 1024))
    for _ in range(10):
        matrix = random.standard_normal((1024, 1024), np.float32)
        state = graph.op("MatMul", state, graph.weight(matrix))
    graph.output("y", state, "float32", ("batch", 1024))
    graph.save(version / "model.onnx")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("measured")
    for name, backend in (("network", "onnxruntime"), ("code", "python")):
        (made / name / "1").mkdir(parents=True)
        more = _TENSORS if name == "code" else ""
        (made / name / "config.pbtxt").write_text(f'backend: "{backend}" {more}')
    _network(made / "network" / "1")
    (made / "code" / "1" / "model.py").write_text(_PYTHON)
    return made


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("log") / "log"
    with serving(repository, log, "--model-control-mode=explicit") as served:
        yield served


def _memory(server: Served) -> int:
    """The proportional set size of the server and all processes below it."""
    root = server.process.pid
    texts = (read_of(pid, "smaps_rollup").decode() for pid in (root, *processes_below(root)))
    lines = (line for text in texts for line in text.splitlines() if line.startswith("Pss:"))
    return sum(int(line.split()[1]) * 1024 for line in lines)


@pytest.mark.parametrize("name", ["network", "code"])
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
    measured = _memory(server) - before
    assert plan["devices"]["host"]["needed"] - bare == pytest.approx(measured, rel=0.33)
