"""Graphs whose inputs have a value already, which a client may leave to the graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, save
from tritonclient.grpc import InferenceServerClient, InferInput

from harness.serving import Served, serving

pytestmark = pytest.mark.slow

_DECLARED = """
backend: "onnxruntime"
max_batch_size: 0
input { name: "x" data_type: TYPE_FP32 dims: 2 }
input { name: "scale" data_type: TYPE_FP32 dims: 2 optional: true }
output { name: "y" data_type: TYPE_FP32 dims: 2 }
"""


def _save(file: Path) -> None:
    """y = x * scale, where scale is an input and has the value 2 as well."""
    names = ("x", "scale", "y")
    x, scale, y = (helper.make_tensor_value_info(each, TensorProto.FLOAT, [2]) for each in names)
    two = helper.make_tensor("scale", TensorProto.FLOAT, [2], [2.0, 2.0])
    node = helper.make_node("Mul", ["x", "scale"], ["y"])
    graph = helper.make_graph([node], "scaled", [x, scale], [y], initializer=[two])
    file.parent.mkdir(parents=True)
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=8), file)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    pytest.importorskip("onnxruntime")
    models = tmp_path_factory.mktemp("initializers") / "models"
    for name in ("completed", "declared"):
        _save(models / name / "1" / "model.onnx")
    (models / "declared" / "config.pbtxt").write_text(_DECLARED)
    with serving(models, models.with_suffix(".log")) as served:
        yield served


def _asked(server: Served, model: str, **given: float) -> list[float]:
    tensors = []
    for name, value in given.items():
        tensors.append(InferInput(name, [2], "FP32"))
        tensors[-1].set_data_from_numpy(np.full(2, value, np.float32))
    with InferenceServerClient(server.grpc) as client:
        found: list[float] = client.infer(model, tensors).as_numpy("y").tolist()
    return found


def test_a_completed_configuration_leaves_them_out(server: Served) -> None:
    with InferenceServerClient(server.grpc) as client:
        inputs = [each.name for each in client.get_model_metadata("completed").inputs]
    assert inputs == ["x"]
    assert _asked(server, "completed", x=3) == [6, 6]


def test_where_they_are_declared_a_client_may_send_them(server: Served) -> None:
    assert _asked(server, "declared", x=3) == [6, 6]
    assert _asked(server, "declared", x=3, scale=5) == [15, 15]
