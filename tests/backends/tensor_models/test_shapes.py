"""Tensors whose shape differs from `dims` in the configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from onnx import TensorProto

from backends.tensor_models import graphs
from penstock.core.config import ModelConfig, TensorReshape
from penstock.core.tensor import DataType
from penstock_backends.onnxruntime import OnnxRuntimeBackend

Open = Callable[..., Awaitable[OnnxRuntimeBackend]]


async def test_the_graph_gets_and_gives_the_shape_of_the_reshape(
    open_backend: Open, version: Path
) -> None:
    """What clients see is the server's business."""
    graphs.save_identity(version / "model.onnx", shape=("n", "k", 2))
    config = ModelConfig(
        name="reshaped",
        max_batch_size=4,
        input=(graphs.tensor_in("x", DataType.FP32, 1, 2, -1, reshape=TensorReshape((-1, 2))),),
        output=(graphs.tensor_out("y", DataType.FP32, 2, -1, reshape=TensorReshape((-1, 2))),),
    )
    backend = await open_backend(config)
    x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    outcomes = await backend.execute([graphs.request(x=x), graphs.request(x=x[:1])])
    assert [graphs.tensor(o, "y").shape for o in outcomes] == [(2, 3, 2), (1, 3, 2)]
    assert_array_equal(graphs.tensor(outcomes[0], "y").numpy(), x)


async def test_one_number_per_row_has_no_dimension_but_the_batch(
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
    outcomes = await backend.execute([graphs.request(x=np.ones(n, np.float32)) for n in (1, 2)])
    assert [graphs.tensor(o, "y").shape for o in outcomes] == [(1,), (2,)]


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


@pytest.mark.parametrize(("index", "row"), [((), (2,)), ((1,), (1, 2)), (("n",), (1, 2))])
async def test_the_graph_gets_a_scalar_where_it_asks_for_one(
    open_backend: Open, version: Path, index: graphs.Shape, row: tuple[int, ...]
) -> None:
    """Operators such as Gather tell it from an array of one element; the runtime takes either."""
    graphs.save(
        version / "model.onnx",
        [graphs.node("Gather", ["table", "x"], ["y"])],
        [graphs.value("x", TensorProto.INT64, index)],
        [graphs.value("y", TensorProto.FLOAT, (*index, 2))],
        {"table": np.array([[1, 2], [3, 4]], np.float32)},
    )
    config = ModelConfig(
        name="scalar",
        input=(graphs.tensor_in("x", DataType.INT64, 1),),
        output=(graphs.tensor_out("y", DataType.FP32, *row),),
    )
    backend = await open_backend(config)
    (outcome,) = await backend.execute([graphs.request(x=np.array([1]))])
    assert graphs.tensor(outcome, "y").numpy().reshape(-1).tolist() == [3, 4]
    assert graphs.tensor(outcome, "y").shape == row
