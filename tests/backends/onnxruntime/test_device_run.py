"""Tensors that stay on a device from graph to graph, and batches that are joined there.

The device is the CPU's memory, or a stand-in for a GPU that has it: ONNX Runtime's own functions
take it, and its own signatures each call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnxruntime import IOBinding, OrtValue

from backends.tensor_models import graphs
from penstock.core.config import ModelConfig, ModelInput
from penstock.core.device_tensor import DeviceTensor
from penstock.core.errors import InternalError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import Array, DataType, Tensor
from penstock_backends.onnxruntime import OnnxRuntimeBackend
from penstock_backends.onnxruntime.graph import OnnxGraph
from penstock_backends.onnxruntime.providers import Device
from penstock_backends.onnxruntime.session import open_graph
from penstock_backends.onnxruntime.settings import SessionSettings
from penstock_backends.tensor_models.device_run import DeviceRun
from penstock_backends.tensor_models.tensor_model import Answer

A = np.arange(4, dtype=np.float32).reshape(2, 2)
BOTH = frozenset(("sum", "difference"))
_CPU = (1, 0)


def _graph(path: Path, config: ModelConfig) -> OnnxGraph:
    graph = open_graph(path, config, SessionSettings.from_config(config, {}), Device())
    assert graph.memory is None  # it has none of its own
    graph.memory = _CPU
    return graph


@pytest.fixture
def sums(tmp_path: Path) -> Answer:
    config = graphs.sums_config()
    graph = _graph(graphs.save_sums(tmp_path / "model.onnx"), config)
    return OnnxRuntimeBackend.tensor_model(config, graph)


def _answer(model: Answer, request: InferenceRequest) -> InferenceResponse:
    (outcome,) = model([request])
    assert isinstance(outcome, InferenceResponse)
    return outcome


def _copied(tensor: Any) -> bool:
    """Whether the host has looked at a tensor of the device."""
    assert isinstance(tensor, DeviceTensor)
    return tensor._array is not None


def test_outputs_stay_where_the_next_graph_takes_them(sums: Answer) -> None:
    request = graphs.request(a=A, b=A)._replace(on_device=BOTH)
    made = _answer(sums, request).outputs
    inputs = {"a": made["sum"], "b": made["difference"]}
    response = _answer(sums, InferenceRequest("m", inputs=inputs))
    assert not _copied(made["sum"])
    assert not _copied(made["difference"])
    assert response.outputs["sum"].numpy().tolist() == (2 * A).tolist()
    assert made["sum"].numpy().tolist() == (2 * A).tolist()


def test_only_the_outputs_that_may_stay_do(sums: Answer) -> None:
    request = graphs.request(a=A, b=A)._replace(on_device=frozenset(("sum",)))
    outputs = _answer(sums, request).outputs
    assert (outputs["sum"].device is None, outputs["difference"].device is None) == (False, True)
    assert outputs["difference"].numpy().tolist() == (0 * A).tolist()


def test_a_tensor_of_a_device_fits_in_another_shape(sums: Answer) -> None:
    request = graphs.request(a=A.reshape(1, 4)[:, :2], b=A[:1])._replace(on_device=BOTH)
    made = _answer(sums, request).outputs["sum"].reshaped((2, 1)).reshaped((1, 2))
    response = _answer(sums, InferenceRequest("m", inputs={"a": made, "b": made}))
    assert response.outputs["sum"].numpy().tolist() == (4 * A[:1]).tolist()
    assert not _copied(made)


def test_a_tensor_of_another_device_is_copied(sums: Answer) -> None:
    class Elsewhere:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 3)

    far = DeviceTensor(DataType.FP32, (2, 2), Elsewhere(), A.copy)
    response = _answer(sums, InferenceRequest("m", inputs={"a": far, "b": Tensor.from_numpy(A)}))
    assert response.outputs["sum"].numpy().tolist() == (2 * A).tolist()


def _answers(model: Answer, *requests: InferenceRequest) -> list[InferenceResponse]:
    outcomes = model(requests)
    assert all(isinstance(outcome, InferenceResponse) for outcome in outcomes), outcomes
    return [outcome for outcome in outcomes if isinstance(outcome, InferenceResponse)]


def _left(model: Answer, *arrays: Array) -> list[Tensor]:
    """Twice each array, as one batch has left them on the device."""
    requests = [graphs.request(a=each, b=each)._replace(on_device=BOTH) for each in arrays]
    return [response.outputs["sum"] for response in _answers(model, *requests)]


def _asked(*tensors: Tensor) -> list[InferenceRequest]:
    return [InferenceRequest("m", inputs={"a": each, "b": each}) for each in tensors]


def _place(tensor: Tensor) -> int:
    place: int = np.from_dlpack(tensor.device).__array_interface__["data"][0]
    return place


def test_a_batch_leaves_each_request_its_rows(sums: Answer) -> None:
    first, second = _left(sums, A, A[:1] + 7)
    assert (first.shape, second.shape) == ((2, 2), (1, 2))
    assert _place(second) == _place(first) + A.nbytes  # not copied apart
    assert np.from_dlpack(second.device).tolist() == [[14, 16]]
    assert not _copied(second)
    assert first.numpy().tolist() == (2 * A).tolist()
    assert second.numpy().tolist() == [[14, 16]]


def test_rows_of_one_batch_are_the_next_as_they_lie(sums: Answer) -> None:
    made = _left(sums, A, A[:1] + 7)
    doubled = _answers(sums, *_asked(*made))
    assert [each.outputs["sum"].numpy().tolist() for each in doubled] == [
        (4 * A).tolist(),
        [[28, 32]],
    ]
    assert not any(map(_copied, made))


@pytest.mark.parametrize("order", [(1, 0), (0, 2), (2, 1, 0), (0, 0)], ids=str)
def test_rows_that_lie_apart_are_joined_on_the_device(sums: Answer, order: Sequence[int]) -> None:
    arrays = [A, A[:1] + 7, A + 20]
    made = _left(sums, *arrays)
    doubled = _answers(sums, *_asked(*(made[at] for at in order)))
    assert [each.outputs["sum"].numpy().tolist() for each in doubled] == [
        (4 * arrays[at]).tolist() for at in order
    ]
    assert not any(map(_copied, made))


def test_rows_of_the_host_join_those_of_the_device(sums: Answer) -> None:
    [made] = _left(sums, A)
    theirs = Tensor(DataType.FP32, (1, 2), np.array([[8, 9]], np.float32).tobytes())
    requests = _asked(theirs, made)
    requests[0] = requests[0]._replace(on_device=frozenset(("sum",)))
    first, second = _answers(sums, *requests)
    assert np.from_dlpack(first.outputs["sum"].device).tolist() == [[16, 18]]
    assert first.outputs["difference"].device is None  # nobody takes it on the device
    assert second.outputs["sum"].device is None
    assert second.outputs["sum"].numpy().tolist() == (4 * A).tolist()
    assert not _copied(made)


def test_another_engine_s_tensor_is_taken_by_dlpack(sums: Answer) -> None:
    """numpy stands for it, which speaks DLPack as PyTorch does."""
    theirs = A.copy()
    far = DeviceTensor(DataType.FP32, (2, 2), theirs, lambda: pytest.fail("copied to the host"))
    single, *joined = (_answers(sums, *_asked(*tensors)) for tensors in ([far], [far, far]))
    for response in (*single, *joined[0]):
        assert response.outputs["sum"].numpy().tolist() == (2 * A).tolist()


def test_what_a_request_does_not_ask_for_is_not_its_answer(sums: Answer) -> None:
    [made] = _left(sums, A)
    first, second = _asked(made, made)
    first = first._replace(requested_outputs=("sum",))
    outputs = [set(each.outputs) for each in _answers(sums, first, second)]
    assert outputs == [{"sum"}, {"sum", "difference"}]


def test_rows_of_different_shapes_are_an_error_of_the_batch(sums: Answer) -> None:
    [made] = _left(sums, A)
    outcomes = sums(_asked(made, Tensor.from_numpy(np.zeros((1, 3), np.float32))))
    texts = [outcome.message for outcome in outcomes if isinstance(outcome, InternalError)]
    assert texts == ["input 'a': rows of different shapes cannot be joined"] * 2


# -- a GPU, by name --------------------------------------------------------------------------------

_Call = tuple[str, dict[str, Any]]


class _GpuValue(OrtValue):  # type: ignore[misc]
    """Values of a GPU that has the memory of the host."""

    @classmethod
    def ortvalue_from_shape_and_type(cls, *given: Any, **named: Any) -> OrtValue:
        signature = inspect.signature(OrtValue.ortvalue_from_shape_and_type)
        asked = signature.bind(*given, **named).arguments
        assert (asked["device_type"], asked["device_id"]) == ("cuda", 3)
        made: OrtValue = super().ortvalue_from_shape_and_type(asked["shape"], asked["element_type"])
        return made

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 3)


class _GpuBinding:
    """A binding whose calls fit ONNX Runtime's own, and end at the host's memory."""

    def __init__(self, session: Any, calls: list[_Call]) -> None:
        self.real, self._calls = session.io_binding(), calls

    def __getattr__(self, name: str) -> Callable[..., Any]:
        signature = inspect.signature(getattr(IOBinding, name))

        def call(*given: Any) -> Any:
            arguments = dict(signature.bind(self.real, *given).arguments)
            del arguments["self"]
            self._calls.append((name, dict(arguments)))
            if "device_type" in arguments:
                arguments |= {"device_type": "cpu", "device_id": 0}
            result = getattr(self.real, name)(**arguments)
            if name == "get_outputs":
                return [_GpuValue(value._get_c_value()) for value in result]
            return result

        return call


class _GpuSession:
    """A session of ONNX Runtime that says it is on a GPU."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.calls: list[_Call] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def io_binding(self) -> _GpuBinding:
        return _GpuBinding(self._session, self.calls)

    def run_with_iobinding(self, binding: _GpuBinding, options: Any) -> None:
        self.calls.append(("run_with_iobinding", {}))
        self._session.run_with_iobinding(binding.real, options)


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Answer, list[_Call]]:
    """A model on the stand-in for GPU 3, and the calls of its bindings."""
    monkeypatch.setattr(onnxruntime, "OrtValue", _GpuValue)
    path = str(graphs.save_sums(tmp_path / "model.onnx"))
    session = _GpuSession(onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]))
    graph = OnnxGraph(session, None, (2, 3))
    return OnnxRuntimeBackend.tensor_model(graphs.sums_config(), graph), session.calls


def test_a_batch_on_a_gpu_is_bound_where_it_is(gpu: tuple[Answer, list[_Call]]) -> None:
    model, calls = gpu
    made = _left(model, A, A + 7)
    assert [name for name, _ in calls] == [
        *("bind_cpu_input", "bind_cpu_input", "bind_output", "bind_output"),
        *("synchronize_inputs", "run_with_iobinding", "synchronize_outputs", "get_outputs"),
    ]
    outputs = [asked for name, asked in calls if name == "bind_output"]
    assert [(each["device_type"], each["device_id"]) for each in outputs] == [("cuda", 3)] * 2
    calls.clear()
    _answers(model, *_asked(*made))  # all rows of a value, as it is
    assert [name for name, _ in calls][:2] == ["bind_ortvalue_input"] * 2
    calls.clear()
    _answers(model, *_asked(made[1]))  # some rows of it, by their address
    (_, bound), *_ = calls
    assert (bound["device_type"], bound["device_id"]) == ("cuda", 3)
    assert (bound["element_type"], bound["shape"]) == (np.float32, [2, 2])


def test_a_large_batch_of_the_host_is_written_to_the_gpu_once(
    gpu: tuple[Answer, list[_Call]],
) -> None:
    model, calls = gpu
    large = np.arange(20_000, dtype=np.float32).reshape(-1, 2)
    answers = _answers(model, *(graphs.request(a=large + n, b=large) for n in range(3)))
    assert [name for name, _ in calls][:2] == ["bind_ortvalue_input"] * 2
    outputs = [asked for name, asked in calls if name == "bind_output"]
    assert [each["device_type"] for each in outputs] == ["cpu", "cpu"]
    for n, answer in enumerate(answers):
        assert (answer.outputs["difference"].numpy() == n).all()


def test_a_single_request_of_the_host_goes_the_usual_way(gpu: tuple[Answer, list[_Call]]) -> None:
    model, calls = gpu
    [answer] = _answers(model, graphs.request(a=A, b=A))
    assert answer.outputs["sum"].numpy().tolist() == (2 * A).tolist()
    assert calls == []


def test_an_error_of_the_graph_is_the_answer(sums: Answer) -> None:
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
