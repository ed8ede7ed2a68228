"""Ragged inputs, joined end to end or padded, and outputs that are split by their source."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from onnx import TensorProto

from backends.tensor_models import graphs
from penstock.core.config import (
    BatchInput,
    BatchInputKind,
    BatchOutput,
    ModelConfig,
    ModelInput,
    ModelOutput,
)
from penstock.core.errors import ConfigError, InternalError, ModelLoadError
from penstock.core.tensor import DataType
from penstock_backends.onnxruntime import OnnxRuntimeBackend
from penstock_backends.onnxruntime.session import read_graph
from penstock_backends.tensor_models.assembly import Assembly
from penstock_backends.tensor_models.autocomplete import completed

Open = Callable[..., Awaitable[OnnxRuntimeBackend]]


def _input(name: str = "x", *dims: int, datatype: DataType = DataType.FP32) -> ModelInput:
    return ModelInput(name, datatype, dims=dims or (-1,), allow_ragged_batch=True)


def sums_config(**changes: Any) -> ModelConfig:
    ends = BatchInput(
        BatchInputKind.BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO, ("ends",), DataType.INT32, ("x",)
    )
    config = ModelConfig(
        name="sums",
        max_batch_size=8,
        input=(_input(),),
        output=(
            ModelOutput("sum", DataType.FP32, dims=(1,)),
            ModelOutput("twice", DataType.FP32, dims=(-1,)),
        ),
        batch_input=(ends,),
        batch_output=(BatchOutput(("twice",), source_input=("x",)),),
    )
    return replace(config, **changes)


def save_sums(version: Path) -> None:
    """sum [m, 1]: of the elements of each request, which `ends` bound; twice [n] = x + x."""
    nodes = [
        graphs.node("CumSum", ["x", "axis"], ["totals"]),
        graphs.node("Concat", ["nothing", "totals"], ["upto"], axis=0),
        graphs.node("Gather", ["upto", "ends"], ["bounds"]),
        graphs.node("Slice", ["bounds", "one", "far"], ["high"]),
        graphs.node("Slice", ["bounds", "zero", "last"], ["low"]),
        graphs.node("Sub", ["high", "low"], ["flat"]),
        graphs.node("Unsqueeze", ["flat", "one"], ["sum"]),
        graphs.node("Add", ["x", "x"], ["twice"]),
    ]
    numbers = {"zero": 0, "one": 1, "last": -1, "far": 1 << 40}
    weights = {name: np.array([value]) for name, value in numbers.items()}
    inputs = [
        graphs.value("x", TensorProto.FLOAT, ("n",)),
        graphs.value("ends", TensorProto.INT32, ("e",)),
    ]
    outputs = [
        graphs.value("sum", TensorProto.FLOAT, ("m", 1)),
        graphs.value("twice", TensorProto.FLOAT, ("n",)),
    ]
    others = {"axis": np.array(0), "nothing": np.zeros(1, np.float32)}
    graphs.save(version / "model.onnx", nodes, inputs, outputs, {**weights, **others})


def _request(*values: float) -> Any:
    return graphs.request(x=np.array([values], np.float32))


@pytest.mark.contract("C-12", "C-18", "C-19", "C-20")
async def test_ragged_requests_are_joined_end_to_end_and_split_again(
    open_backend: Open, version: Path
) -> None:
    save_sums(version)
    backend = await open_backend(sums_config())
    outcomes = await backend.execute([_request(1, 2, 3), _request(10), _request(5, 6)])
    assert [graphs.tensor(o, "sum").numpy().tolist() for o in outcomes] == [[[6]], [[10]], [[11]]]
    twice = [graphs.tensor(o, "twice").numpy().tolist() for o in outcomes]
    assert twice == [[[2, 4, 6]], [[20]], [[10, 12]]]


async def test_a_lone_ragged_request_is_flat_too(open_backend: Open, version: Path) -> None:
    save_sums(version)
    backend = await open_backend(sums_config())
    (outcome,) = await backend.execute([_request(1, 2)])
    assert graphs.tensor(outcome, "sum").numpy().tolist() == [[3]]
    assert graphs.tensor(outcome, "twice").numpy().tolist() == [[2, 4]]


def test_an_input_that_is_computed_is_nothing_that_clients_send(version: Path) -> None:
    save_sums(version)
    config = sums_config(input=(), output=())
    graph = read_graph(config, version / "model.onnx", {})
    assert [tensor.name for tensor in completed(config, graph, 4).input] == ["x"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"input": (_input(), ModelInput("ends", DataType.INT32, dims=(-1,)))},
            "tensor 'ends': the model expects shape",
        ),
        ({"batch_input": ()}, "not declared: ends"),
        (
            {"batch_input": (BatchInput(target_name=("e",), source_input=("x",)),)},
            "unexpected inference batch input 'e'",
        ),
        (
            {
                "batch_input": (
                    BatchInput(target_name=("ends",), data_type=DataType.FP32, source_input=("x",)),
                )
            },
            "expects datatype TYPE_FP32 for batch input 'ends', model provides TYPE_INT32",
        ),
    ],
)
async def test_tensors_unknown_to_the_graph_are_refused(
    changes: dict[str, Any], text: str, open_backend: Open, version: Path
) -> None:
    save_sums(version)
    with pytest.raises(ModelLoadError, match=text):
        await open_backend(sums_config(**changes))


async def test_a_graph_that_is_not_flat_cannot_be_ragged(open_backend: Open, version: Path) -> None:
    graphs.save_identity(version / "model.onnx", shape=("n", "m"))
    config = ModelConfig(
        name="m",
        max_batch_size=8,
        input=(_input(),),
        output=(ModelOutput("y", DataType.FP32, dims=(-1,)),),
    )
    text = r"expects model provides input with shape \[-1\]  for ragged input 'x', model provides"
    with pytest.raises(ModelLoadError, match=text):
        await open_backend(config)


def test_a_scattered_output_has_the_dimensions_of_its_source() -> None:
    output = (ModelOutput("sum", DataType.FP32, dims=(1,)), ModelOutput("twice", dims=(-1, 2)))
    with pytest.raises(ConfigError, match="'twice' must have as many dimensions as its source"):
        OnnxRuntimeBackend.check_config(sums_config(output=output))


def test_a_scattered_output_of_another_size_is_the_models_fault() -> None:
    assembly = Assembly(sums_config())
    feeds = [{"x": np.zeros((1, 2))}, {"x": np.zeros((1, 3))}]
    with pytest.raises(InternalError, match="source inputs have 5 elements, the model output has"):
        assembly.split("twice", np.zeros(4), feeds, [1, 1])


SHAPES = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5)), min_size=1, max_size=6)


@given(SHAPES)
def test_joining_and_scattering_is_lossless(shapes: list[tuple[int, int]]) -> None:
    assembly = Assembly(sums_config())
    feeds = [{"x": np.random.default_rng(1).normal(size=shape)} for shape in shapes]
    joined = assembly.joined(feeds)["x"]
    parts = assembly.split("twice", joined, feeds, [rows for rows, _ in shapes])
    assert joined.ndim == 1
    for part, feed in zip(parts, feeds, strict=True):
        assert_array_equal(part, feed["x"], strict=True)


# -- padding -------------------------------------------------------------------------------------


def _encoder_config(padding: str = "input_ids=0,attention_mask=0", **more: str) -> ModelConfig:
    names = ("input_ids", "attention_mask")
    return ModelConfig(
        name="encoder",
        max_batch_size=8,
        input=tuple(_input(name, datatype=DataType.INT64) for name in names),
        output=(ModelOutput("EMBEDDING", DataType.FP32, dims=(8,)),),
        parameters=graphs.parameters(**{"penstock.padding": padding, **more}),
    )


def _tokens(*ids: int) -> Any:
    array = np.array([ids])
    return graphs.request(input_ids=array, attention_mask=np.ones_like(array))


async def test_padded_requests_are_answered_as_if_they_were_alone(
    open_backend: Open, version: Path
) -> None:
    graphs.save_encoder(version / "model.onnx")
    backend = await open_backend(_encoder_config())
    requests = [_tokens(4), _tokens(5, 6, 7, 8), _tokens(9, 1)]
    together = await backend.execute(requests)
    for request, outcome in zip(requests, together, strict=True):
        (alone,) = await backend.execute([request])
        expected = graphs.tensor(alone, "EMBEDDING").numpy()
        np.testing.assert_allclose(graphs.tensor(outcome, "EMBEDDING").numpy(), expected, rtol=1e-6)


async def test_outputs_as_long_as_the_padding_are_cut(open_backend: Open, version: Path) -> None:
    graphs.save_identity(version / "model.onnx", TensorProto.INT64, ("n", "m"))
    config = ModelConfig(
        name="m",
        max_batch_size=8,
        input=(_input(datatype=DataType.INT64),),
        output=(ModelOutput("y", DataType.INT64, dims=(-1,)),),
        parameters=graphs.parameters(**{"penstock.padding": "x=7", "penstock.padded_outputs": "y"}),
    )
    backend = await open_backend(config)
    requests = [graphs.request(x=np.array(v)) for v in ([[1, 2]], [[3], [4]], [[5, 6, 8]])]
    outcomes = await backend.execute(requests)
    answers = [graphs.tensor(outcome, "y").numpy().tolist() for outcome in outcomes]
    assert answers == [[[1, 2]], [[3], [4]], [[5, 6, 8]]]


def test_padding_goes_behind_with_its_value() -> None:
    assembly = Assembly(_encoder_config("input_ids=9,attention_mask=0"))
    feeds = [{"input_ids": np.array(value)} for value in ([[1, 2, 3]], [[4], [5]])]
    joined = assembly.joined(feeds)["input_ids"]
    assert joined.tolist() == [[1, 2, 3], [4, 9, 9], [5, 9, 9]]


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"penstock.padding": "nobody=0"}, "'nobody' must be an input with a variable dimension"),
        ({"penstock.padding": "input_ids=x"}, "'input_ids=x' gives 'input_ids' no value"),
        ({"penstock.padding": "input_ids"}, "'input_ids' gives 'input_ids' no value"),
        ({"penstock.padding": "input_ids=1e99"}, "gives 'input_ids' no value"),
        ({"penstock.padding": "input_ids=99999999999999999999"}, "gives 'input_ids' no value"),
        ({"penstock.padded_outputs": "EMBEDDING"}, "'EMBEDDING' must be an output of a model"),
    ],
)
def test_padding_that_makes_no_sense_is_refused(parameters: dict[str, str], text: str) -> None:
    config = replace(_encoder_config(), parameters=graphs.parameters(**parameters))
    with pytest.raises(ConfigError, match=text):
        OnnxRuntimeBackend.check_config(config)


@given(SHAPES)
def test_padding_and_cutting_is_lossless(shapes: list[tuple[int, int]]) -> None:
    config = replace(
        _encoder_config(**{"penstock.padded_outputs": "EMBEDDING"}),
        output=(ModelOutput("EMBEDDING", DataType.INT64, dims=(-1,)),),
    )
    assembly = Assembly(config)
    feeds = [{"input_ids": np.random.default_rng(1).integers(9, size=shape)} for shape in shapes]
    joined = assembly.joined(feeds)["input_ids"]
    assert joined.shape == (sum(n for n, _ in shapes), max(width for _, width in shapes))
    parts = assembly.split("EMBEDDING", joined, feeds, [rows for rows, _ in shapes])
    for part, feed in zip(parts, feeds, strict=True):
        assert_array_equal(part, feed["input_ids"], strict=True)
