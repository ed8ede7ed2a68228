"""Tensors that stay on a device from graph to graph; the device is the CPU's memory here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.onnxruntime import graphs
from penstock.core.config import ModelConfig, ModelInput
from penstock.core.device_tensor import DeviceTensor
from penstock.core.errors import InternalError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import DataType, Tensor
from penstock_backends.onnxruntime.device_run import DeviceRun
from penstock_backends.onnxruntime.graph import OnnxGraph
from penstock_backends.onnxruntime.providers import Device
from penstock_backends.onnxruntime.session import open_graph
from penstock_backends.onnxruntime.settings import SessionSettings
from penstock_backends.onnxruntime.tensor_model import TensorModel

A = np.arange(4, dtype=np.float32).reshape(2, 2)
BOTH = frozenset(("sum", "difference"))


def _graph(path: Path, config: ModelConfig) -> OnnxGraph:
    graph = open_graph(path, config, SessionSettings.from_config(config, {}), Device())
    assert graph.memory is None  # it has none of its own
    graph.memory = ("cpu", 0)
    return graph


@pytest.fixture
def sums(tmp_path: Path) -> TensorModel:
    config = graphs.sums_config()
    return TensorModel(config, _graph(graphs.save_sums(tmp_path / "model.onnx"), config))


def _answer(model: TensorModel, request: InferenceRequest) -> InferenceResponse:
    (outcome,) = model([request])
    assert isinstance(outcome, InferenceResponse)
    return outcome


def _copied(tensor: Any) -> bool:
    """Whether the host has looked at a tensor of the device."""
    assert isinstance(tensor, DeviceTensor)
    return tensor._array is not None


def test_outputs_stay_where_the_next_graph_takes_them(sums: TensorModel) -> None:
    request = graphs.request(a=A, b=A)._replace(on_device=BOTH)
    made = _answer(sums, request).outputs
    inputs = {"a": made["sum"], "b": made["difference"]}
    response = _answer(sums, InferenceRequest("m", inputs=inputs))
    assert not _copied(made["sum"])
    assert not _copied(made["difference"])
    assert response.outputs["sum"].numpy().tolist() == (2 * A).tolist()
    assert made["sum"].numpy().tolist() == (2 * A).tolist()


def test_only_the_outputs_that_may_stay_do(sums: TensorModel) -> None:
    request = graphs.request(a=A, b=A)._replace(on_device=frozenset(("sum",)))
    outputs = _answer(sums, request).outputs
    assert (outputs["sum"].device is None, outputs["difference"].device is None) == (False, True)
    assert outputs["difference"].numpy().tolist() == (0 * A).tolist()


def test_a_tensor_of_a_device_fits_in_another_shape(sums: TensorModel) -> None:
    request = graphs.request(a=A.reshape(1, 4)[:, :2], b=A[:1])._replace(on_device=BOTH)
    made = _answer(sums, request).outputs["sum"].reshaped((2, 1)).reshaped((1, 2))
    response = _answer(sums, InferenceRequest("m", inputs={"a": made, "b": made}))
    assert response.outputs["sum"].numpy().tolist() == (4 * A[:1]).tolist()
    assert not _copied(made)


def test_a_tensor_of_another_device_is_copied(sums: TensorModel) -> None:
    class Elsewhere:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 3)

    far = DeviceTensor(DataType.FP32, (2, 2), Elsewhere(), A.copy)
    response = _answer(sums, InferenceRequest("m", inputs={"a": far, "b": Tensor.from_numpy(A)}))
    assert response.outputs["sum"].numpy().tolist() == (2 * A).tolist()


def test_requests_of_a_batch_are_joined_on_the_host(sums: TensorModel) -> None:
    request = graphs.request(a=A, b=A)._replace(on_device=BOTH)
    outcomes = sums([request, request])
    outputs = [o.outputs for o in outcomes if isinstance(o, InferenceResponse)]
    assert [each["sum"].device for each in outputs] == [None, None]
    made = _answer(sums, request).outputs["sum"]
    joined = InferenceRequest("m", inputs={"a": made, "b": made})
    sums_of = [o for o in sums([joined, joined]) if isinstance(o, InferenceResponse)]
    assert [o.outputs["sum"].numpy().tolist() for o in sums_of] == [(4 * A).tolist()] * 2


def test_an_error_of_the_graph_is_the_answer(sums: TensorModel) -> None:
    wrong = graphs.request(a=A, b=np.zeros((3, 2), np.float32))._replace(on_device=BOTH)
    (outcome,) = sums([wrong])
    assert isinstance(outcome, InternalError)
    assert "onnx runtime error" in outcome.message


def test_inputs_that_have_to_be_changed_first_take_the_other_way(tmp_path: Path) -> None:
    config = graphs.sums_config()
    graph = _graph(graphs.save_sums(tmp_path / "model.onnx"), config)
    assert DeviceRun.for_graph(config, graph) is not None
    ragged = ModelInput(name="a", data_type=DataType.FP32, dims=(-1,), allow_ragged_batch=True)
    assert DeviceRun.for_graph(replace(config, input=(ragged,)), graph) is None
    graph.memory = None
    assert DeviceRun.for_graph(config, graph) is None
