"""Tensors whose shape is another one for clients than for the graph."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from backends.onnxruntime import graphs
from penstock.core.config import ModelConfig, TensorReshape
from penstock.core.tensor import DataType
from penstock_backends.onnxruntime import OnnxRuntimeBackend
from penstock_backends.onnxruntime.shapes import Reshape

Open = Callable[..., Awaitable[OnnxRuntimeBackend]]


@pytest.mark.parametrize(
    ("reshape", "shape", "expected"),
    [
        (Reshape((3, 4), (1, 12)), (3, 4), (1, 12)),
        (Reshape((1,), ()), (1,), ()),
        (Reshape((-1, 1, -1), (-1, -1)), (5, 1, 7), (5, 7)),
        (Reshape((4, -1), (1, 4, -1), batched=True), (9, 4, 2), (9, 1, 4, 2)),
        (Reshape((1,), (), batched=True), (9, 1), (9,)),
    ],
)
def test_variable_dimensions_correspond_in_order(
    reshape: Reshape, shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert reshape(shape) == expected


def test_a_shape_that_was_reshaped_already_stays() -> None:
    assert Reshape((-1, 1), (-1,))((6,)) == (6,)


async def test_clients_see_dims_and_the_graph_sees_the_reshape(
    open_backend: Open, version: Path
) -> None:
    graphs.save_identity(version / "model.onnx", shape=("n", "k", 2))
    config = ModelConfig(
        name="reshaped",
        max_batch_size=4,
        input=(graphs.tensor_in("x", DataType.FP32, 1, 2, -1, reshape=TensorReshape((-1, 2))),),
        output=(graphs.tensor_out("y", DataType.FP32, 2, -1, reshape=TensorReshape((-1, 2))),),
    )
    backend = await open_backend(config)
    x = np.arange(12, dtype=np.float32).reshape(2, 1, 2, 3)
    outcomes = await backend.execute([graphs.request(x=x), graphs.request(x=x[:1])])
    assert [graphs.tensor(o, "y").shape for o in outcomes] == [(2, 2, 3), (1, 2, 3)]
    assert_array_equal(graphs.tensor(outcomes[0], "y").numpy().ravel(), x.ravel())


async def test_a_graph_without_batch_dimension_can_be_served_through_a_reshape(
    open_backend: Open, version: Path
) -> None:
    """As image models with a fixed batch of one are: dims [2], reshape [1,2]."""
    graphs.save_identity(version / "model.onnx", shape=(1, 2))
    config = ModelConfig(
        name="image",
        input=(graphs.tensor_in("x", DataType.FP32, 2, reshape=TensorReshape((1, 2))),),
        output=(graphs.tensor_out("y", DataType.FP32, 2, reshape=TensorReshape((1, 2))),),
    )
    backend = await open_backend(config)
    (outcome,) = await backend.execute([graphs.request(x=np.ones(2, np.float32))])
    assert graphs.tensor(outcome, "y").shape == (2,)


async def test_one_number_per_row_is_served_as_one_element(
    open_backend: Open, version: Path
) -> None:
    graphs.save_identity(version / "model.onnx", shape=("n",))
    empty = TensorReshape()
    config = ModelConfig(
        name="numbers",
        max_batch_size=4,
        input=(graphs.tensor_in("x", DataType.FP32, 1, reshape=empty),),
        output=(graphs.tensor_out("y", DataType.FP32, 1, reshape=empty),),
    )
    backend = await open_backend(config)
    outcomes = await backend.execute(
        [graphs.request(x=np.ones((n, 1), np.float32)) for n in (1, 2)]
    )
    assert [graphs.tensor(o, "y").shape for o in outcomes] == [(1, 1), (2, 1)]


async def test_a_scalar_is_served_as_one_element(open_backend: Open, version: Path) -> None:
    graphs.save_identity(version / "model.onnx", shape=())
    config = ModelConfig(
        name="scalar",
        input=(graphs.tensor_in("x", DataType.FP32, 1),),
        output=(graphs.tensor_out("y", DataType.FP32, 1),),
    )
    backend = await open_backend(config)
    (outcome,) = await backend.execute([graphs.request(x=np.array([5], np.float32))])
    assert graphs.tensor(outcome, "y").numpy().tolist() == [5]
