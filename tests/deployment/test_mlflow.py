"""The calls that MLflow's plugin for Triton makes, in its order, on a server in explicit mode."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from harness.serving import serving
from penstock.demo.onnx_graph import OnnxGraphBuilder

pytestmark = [pytest.mark.slow, pytest.mark.contract("K-17")]

_CONFIG = 'backend: "onnxruntime"\ndefault_model_filename: "network.onnx"\n'
"""What the plugin writes for a network without a configuration."""


def _network(file: Path, factor: float) -> None:
    graph = OnnxGraphBuilder("network")
    given = graph.input("x", "float32", ("batch", 2))
    weight = graph.weight(np.eye(2, dtype=np.float32) * np.float32(factor))
    graph.output("y", graph.op("MatMul", given, weight), "float32", ("batch", 2))
    graph.save(file)


def _copy(repository: Path, factor: float) -> None:
    """The files that the plugin copies, and its own about the deployment."""
    folder = repository / "net"
    (folder / "1").mkdir(parents=True, exist_ok=True)
    _network(folder / "1" / "network.onnx", factor)
    (folder / "config.pbtxt").write_text(_CONFIG)
    (folder / "mlflow-meta.json").write_text(json.dumps({"name": "net", "flavor": "onnx"}))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("deployed") / "models"
    repository.mkdir()
    return repository


@pytest.fixture(scope="module")
def client(repository: Path) -> Iterator[InferenceServerClient]:
    pytest.importorskip("onnxruntime")
    log = repository.with_suffix(".log")
    with (
        serving(repository, log, "--model-control-mode=explicit") as served,
        InferenceServerClient(served.http) as client,
    ):
        yield client


def _deployed(client: InferenceServerClient) -> list[str]:
    """What the plugin lists."""
    index = client.get_model_repository_index()
    return [each["name"] for each in index if each.get("state") == "READY"]


def _predicted(client: InferenceServerClient) -> list[list[float]]:
    (given,) = client.get_model_metadata("net")["inputs"]
    tensor = InferInput(given["name"], [1, 2], given["datatype"])
    tensor.set_data_from_numpy(np.array([[1, 2]], np.float32))
    answer = client.infer("net", [tensor])
    (output,) = answer.get_response()["outputs"]
    values: list[list[float]] = answer.as_numpy(output["name"]).tolist()
    return values


def test_a_model_is_deployed_asked_changed_and_removed(
    client: InferenceServerClient, repository: Path
) -> None:
    assert _deployed(client) == []
    _copy(repository, 2)
    client.load_model("net")
    assert (_deployed(client), _predicted(client)) == (["net"], [[2, 4]])
    _copy(repository, 3)
    client.load_model("net")
    assert (_deployed(client), _predicted(client)) == (["net"], [[3, 6]])
    client.unload_model("net")
    shutil.rmtree(repository / "net")
    assert _deployed(client) == []
    with pytest.raises(InferenceServerException, match="net"):
        _predicted(client)


def test_what_cannot_be_loaded_is_an_error_of_the_deployment(
    client: InferenceServerClient, repository: Path
) -> None:
    (repository / "broken" / "1").mkdir(parents=True)
    (repository / "broken" / "1" / "network.onnx").write_bytes(b"no network")
    (repository / "broken" / "config.pbtxt").write_text(_CONFIG)
    with pytest.raises(InferenceServerException, match="failed to load model 'broken'"):
        client.load_model("broken")
    assert _deployed(client) == []
