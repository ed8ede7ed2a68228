"""Batches of tensors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from onnx import TensorProto

from backends.tensor_models import graphs
from penstock.core.config import ModelConfig
from penstock.core.errors import InternalError, InvalidRequestError
from penstock.core.request import InferenceResponse
from penstock.core.tensor import DataType, Tensor
from penstock_backends.onnxruntime import OnnxRuntimeBackend
from penstock_backends.onnxruntime.graph import OnnxGraph
from penstock_backends.onnxruntime.providers import Device
from penstock_backends.onnxruntime.session import open_graph
from penstock_backends.onnxruntime.settings import SessionSettings
from penstock_backends.tensor_models.graph import Graph, GraphTensor
from penstock_backends.tensor_models.tensor_model import TensorModel

Open = Callable[..., Awaitable[OnnxRuntimeBackend]]


def _rows(start: float, count: int) -> Any:
    return np.arange(count * 2, dtype=np.float32).reshape(count, 2) + start


async def test_a_batch_is_joined_and_split_by_rows(open_backend: Open, version: Path) -> None:
    graphs.save_sums(version / "model.onnx")
    backend = await open_backend(graphs.sums_config())
    requests = [
        graphs.request(a=_rows(at, n), b=_rows(1, n)) for at, n in ((0, 1), (10, 3), (20, 2))
    ]
    outcomes = await backend.execute(requests)
    for request, outcome in zip(requests, outcomes, strict=True):
        a, b = request.inputs["a"].numpy(), request.inputs["b"].numpy()
        assert_array_equal(graphs.tensor(outcome, "sum").numpy(), a + b)
        assert_array_equal(graphs.tensor(outcome, "difference").numpy(), a - b)


async def test_responses_of_a_batch_are_views_of_one_result(
    open_backend: Open, version: Path
) -> None:
    graphs.save_identity(version / "model.onnx")
    backend = await open_backend(graphs.identity_config(DataType.FP32, 2))
    first, second = await backend.execute(
        [graphs.request(x=_rows(0, 2048)), graphs.request(x=_rows(9, 2048))]
    )
    one, two = graphs.tensor(first, "y").numpy(), graphs.tensor(second, "y").numpy()
    assert two.ctypes.data - one.ctypes.data == one.nbytes
    assert np.shares_memory(np.frombuffer(graphs.tensor(first, "y").buffer, np.float32), one)


async def test_without_batching_a_request_runs_as_it_is(open_backend: Open, version: Path) -> None:
    graphs.save_identity(version / "model.onnx", shape=(3, 2))
    config = ModelConfig(
        name="fixed",
        input=(graphs.tensor_in("x", DataType.FP32, 3, 2),),
        output=(graphs.tensor_out("y", DataType.FP32, 3, 2),),
    )
    backend = await open_backend(config)
    (outcome,) = await backend.execute([graphs.request(x=_rows(0, 3))])
    assert_array_equal(graphs.tensor(outcome, "y").numpy(), _rows(0, 3))


class _Recorder(OnnxGraph):
    """A graph that remembers which outputs it was asked for, and the arrays it was fed."""

    def run(self, feeds: Any, names: Sequence[str]) -> list[Any]:
        self.asked, self.fed = list(names), dict(feeds)
        return super().run(feeds, names)


@pytest.fixture
def recorder(version: Path) -> _Recorder:
    path = graphs.save_sums(version / "model.onnx")
    graph = open_graph(path, graphs.sums_config(), SessionSettings(1), Device())
    return _Recorder(graph._session)


@pytest.mark.parametrize(
    ("asked", "computed"),
    [
        ([("sum",), ("sum",)], ["sum"]),
        ([("difference",), ("sum",)], ["sum", "difference"]),
        ([("sum",), ()], ["sum", "difference"]),
    ],
)
def test_only_requested_outputs_are_computed(
    recorder: _Recorder, asked: list[tuple[str, ...]], computed: list[str]
) -> None:
    model = TensorModel(graphs.sums_config(), recorder)
    outcomes = model([graphs.request(names, a=_rows(0, 1), b=_rows(0, 1)) for names in asked])
    assert recorder.asked == computed
    sent = [list(o.outputs) for o in outcomes if isinstance(o, InferenceResponse)]
    assert sent == [list(names) or ["sum", "difference"] for names in asked]


def test_a_single_request_is_fed_without_a_copy(recorder: _Recorder) -> None:
    buffer = _rows(0, 4).tobytes()
    request = graphs.request(a=Tensor(DataType.FP32, (4, 2), buffer), b=_rows(0, 4))
    TensorModel(graphs.sums_config(), recorder)([request])
    assert np.shares_memory(recorder.fed["a"], np.frombuffer(buffer, np.float32))


def test_a_misaligned_buffer_is_copied(recorder: _Recorder) -> None:
    """Requests may lie anywhere in a message; kernels want aligned elements."""
    buffer = memoryview(b"x" + _rows(0, 1).tobytes())[1:]
    request = graphs.request(a=Tensor(DataType.FP32, (1, 2), buffer), b=_rows(0, 1))
    (outcome,) = TensorModel(graphs.sums_config(), recorder)([request])
    assert recorder.fed["a"].flags.aligned
    assert_array_equal(graphs.tensor(outcome, "sum").numpy(), _rows(0, 1) * 2)


class _Slips(Graph):
    """A graph of a stranger's engine, which answers with what it was made with."""

    engine = "slips"

    def __init__(self, *answers: Any) -> None:
        self.inputs = {"x": GraphTensor("x", DataType.FP32, (-1, 2))}
        self.defaults = {}
        self.outputs = {"y": GraphTensor("y", DataType.FP32, (-1, 2))}
        self._answers = list(answers)

    def run(self, feeds: Any, names: Sequence[str]) -> list[Any]:
        return self._answers


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([np.zeros((1, 2))], "output 'y' came as float64, and is FP32"),
        ([np.zeros((1, 2), ">f4")], "output 'y' came as >f4, and is FP32"),
        ([np.array([["1", "2"]], object)], "output 'y' came as object, and is FP32"),
        ([[[1.0, 2.0]]], "output 'y' came as list, and is FP32"),
        ([], "the slips engine answered with 0 arrays for 1 output"),
    ],
    ids=["float64", "big-endian", "strings", "a list", "too few"],
)
def test_an_engine_that_answers_with_something_else_is_told(answers: Any, told: str) -> None:
    """Otherwise clients would read its bytes as what they are not."""
    model = TensorModel(graphs.identity_config(DataType.FP32, 2), _Slips(*answers))
    (outcome,) = model([graphs.request(x=_rows(0, 1))])
    assert isinstance(outcome, InternalError)
    assert told in outcome.message


@pytest.mark.parametrize(
    ("kind", "datatype"),
    [
        (TensorProto.BOOL, DataType.BOOL),
        (TensorProto.UINT8, DataType.UINT8),
        (TensorProto.UINT16, DataType.UINT16),
        (TensorProto.UINT32, DataType.UINT32),
        (TensorProto.UINT64, DataType.UINT64),
        (TensorProto.INT8, DataType.INT8),
        (TensorProto.INT16, DataType.INT16),
        (TensorProto.INT32, DataType.INT32),
        (TensorProto.INT64, DataType.INT64),
        (TensorProto.FLOAT16, DataType.FP16),
        (TensorProto.FLOAT, DataType.FP32),
        (TensorProto.DOUBLE, DataType.FP64),
        (TensorProto.BFLOAT16, DataType.BF16),
    ],
)
async def test_every_numeric_datatype_passes_both_ways(
    open_backend: Open, version: Path, kind: int, datatype: DataType
) -> None:
    graphs.save_identity(version / "model.onnx", kind)
    backend = await open_backend(graphs.identity_config(datatype, 2))
    bits = [bytes([1, 0] * datatype.itemsize), bytes([0, 1] * datatype.itemsize)]
    outcomes = await backend.execute([graphs.request(x=Tensor(datatype, (1, 2), b)) for b in bits])
    tensors = [graphs.tensor(outcome, "y") for outcome in outcomes]
    assert [bytes(t.buffer) for t in tensors] == bits
    assert [(t.datatype, t.shape) for t in tensors] == [(datatype, (1, 2))] * 2


async def test_bf16_results_outlive_the_run(open_backend: Open, version: Path) -> None:
    graphs.save_identity(version / "model.onnx", TensorProto.BFLOAT16, ("n", 4096))
    backend = await open_backend(graphs.identity_config(DataType.BF16, 4096))
    bits = [np.full((1, 4096), n, np.uint16) for n in range(8)]
    kept = [
        (await backend.execute([graphs.request(x=Tensor.from_numpy(b, DataType.BF16))]))[0]
        for b in bits
    ]
    for outcome, expected in zip(kept, bits, strict=True):
        assert_array_equal(graphs.tensor(outcome, "y").numpy(), expected)


async def test_strings_pass_both_ways(open_backend: Open, version: Path) -> None:
    graphs.save_identity(version / "model.onnx", TensorProto.STRING)
    backend = await open_backend(graphs.identity_config(DataType.BYTES, 2))
    sent = [["", "a\0b"], ["größer", "日本"]]
    requests = [graphs.request(x=Tensor.from_strings(values, (1, 2))) for values in sent]
    outcomes = await backend.execute(requests)
    expected = [[v.encode() for v in values] for values in sent]
    assert [graphs.tensor(outcome, "y").elements() for outcome in outcomes] == expected
    assert graphs.tensor(outcomes[0], "y").numpy().tolist() == [expected[0]]


async def test_a_string_that_is_not_utf8_fails_its_request_only(
    open_backend: Open, version: Path
) -> None:
    graphs.save_identity(version / "model.onnx", TensorProto.STRING)
    backend = await open_backend(graphs.identity_config(DataType.BYTES, 2))
    texts = [b"fine", b"\xff\xfe", b"too"]
    requests = [graphs.request(x=Tensor.from_strings([t, t], (1, 2))) for t in texts]
    first, bad, last = await backend.execute(requests)
    assert isinstance(bad, InvalidRequestError)
    assert "'x' holds a string that is not UTF-8" in bad.message
    assert [graphs.tensor(o, "y").elements()[0] for o in (first, last)] == [b"fine", b"too"]


async def test_a_batch_of_nothing_but_bad_requests_runs_nothing(
    open_backend: Open, version: Path
) -> None:
    graphs.save_identity(version / "model.onnx", TensorProto.STRING)
    backend = await open_backend(graphs.identity_config(DataType.BYTES, 2))
    bad = graphs.request(x=Tensor.from_strings([b"\xff", b"\xff"], (1, 2)))
    outcomes = await backend.execute([bad, bad])
    assert [type(outcome) for outcome in outcomes] == [InvalidRequestError] * 2


@pytest.mark.contract("C-13")
async def test_an_absent_input_takes_the_default_of_the_graph(
    open_backend: Open, version: Path
) -> None:
    graphs.save_with_default(version / "model.onnx")
    config = ModelConfig(
        name="defaulted",
        input=(
            graphs.tensor_in("x", DataType.FP32, -1, 2),
            graphs.tensor_in("b", DataType.FP32, 2, optional=True),
        ),
        output=(graphs.tensor_out("y", DataType.FP32, -1, 2),),
    )
    backend = await open_backend(config)
    x = np.zeros((1, 2), np.float32)
    (absent,) = await backend.execute([graphs.request(x=x)])
    (given,) = await backend.execute([graphs.request(x=x, b=np.array([3, 4], np.float32))])
    assert graphs.tensor(absent, "y").numpy().tolist() == [[1, 1]]
    assert graphs.tensor(given, "y").numpy().tolist() == [[3, 4]]


async def test_an_absent_input_without_default_fails_its_request_only(
    open_backend: Open, version: Path
) -> None:
    graphs.save_sums(version / "model.onnx")
    backend = await open_backend(graphs.sums_config())
    bad, good = await backend.execute(
        [graphs.request(a=_rows(0, 1)), graphs.request(a=_rows(0, 1), b=_rows(0, 1))]
    )
    assert isinstance(bad, InvalidRequestError)
    assert "input 'b' of model 'sums' is missing" in bad.message
    assert isinstance(good, InferenceResponse)


async def test_a_failed_run_fails_the_batch_with_its_reason(
    open_backend: Open, version: Path
) -> None:
    graphs.save_identity(version / "model.onnx")
    backend = await open_backend(graphs.identity_config(DataType.FP32, -1))
    wrong = graphs.request(x=np.zeros((1, 3), np.float32))
    outcomes = await backend.execute([wrong, wrong])
    assert [type(outcome) for outcome in outcomes] == [InternalError] * 2
    assert "onnx runtime error 2: Got invalid dimensions for input: x" in str(outcomes[0])


async def test_an_output_without_the_rows_of_the_batch_is_an_error(
    open_backend: Open, version: Path
) -> None:
    graphs.save(
        version / "model.onnx",
        [graphs.node("Concat", "xx", "y", axis=0)],
        [graphs.value("x", TensorProto.FLOAT, ("n", 2))],
        [graphs.value("y", TensorProto.FLOAT, ("m", 2))],
    )
    backend = await open_backend(graphs.identity_config(DataType.FP32, 2))
    outcomes = await backend.execute([graphs.request(x=_rows(0, 1)), graphs.request(x=_rows(0, 1))])
    assert "failed to split the output tensor 'y'" in str(outcomes[0])
