"""Sequences of ONNX models, whose states the server keeps: from the files to the answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from backends.tensor_models import graphs
from penstock.core.request import InferenceRequest
from penstock.core.tensor import Tensor
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.repository.repository import ModelRepository
from penstock.models.serving.loaded_model import LoadedModel
from penstock.system.reaper import Reaper

_CONFIG = """
    backend: "onnxruntime" max_batch_size: 8
    input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
    output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU count: 2 } ]
    sequence_batching {
      %s
      control_input [
        { name: "ready" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } ] }
      ]
      state [ { input_name: "sum" output_name: "sum_out" data_type: TYPE_FP32 dims: [ 1 ]
                use_same_buffer_for_input_output: true
                initial_state { name: "zero" data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } ]
    }
"""


def _save_sum(path: Path) -> None:
    """y = sum_out = sum + x * ready"""
    column: graphs.Shape = ("n", 1)
    names = ("x", "ready", "sum")
    graphs.save(
        path,
        [
            graphs.node("Mul", ["x", "ready"], ["counted"]),
            graphs.node("Add", ["sum", "counted"], ["sum_out"]),
            graphs.node("Identity", ["sum_out"], ["y"]),
        ],
        [graphs.value(name, TensorProto.FLOAT, column) for name in names],
        [graphs.value(name, TensorProto.FLOAT, column) for name in ("y", "sum_out")],
    )


@asynccontextmanager
async def loaded(path: Path, strategy: str, host: str = "thread") -> AsyncIterator[LoadedModel]:
    _save_sum(path / "m" / "1" / "model.onnx")
    hosted = f'parameters {{ key: "penstock.host" value: {{ string_value: "{host}" }} }}'
    (path / "m" / "config.pbtxt").write_text(_CONFIG % strategy + hosted)
    reaper = Reaper()
    builder = VersionBuilder(lambda _: {}, reaper)
    model = await builder.build(ModelRepository([path]).read("m"), 1)
    yield model
    await model.stop()
    reaper.close()


async def _add(model: LoadedModel, id: int, x: float, at: int, of: int) -> float:
    tensor = Tensor.from_numpy(np.array([[x]], np.float32))
    request = InferenceRequest(
        "m",
        inputs={"x": tensor},
        correlation_id=id,
        sequence_start=at == 0,
        sequence_end=at == of - 1,
    )
    (response,) = [response async for response in model.infer(request)]
    assert [*response.outputs] == ["y"]
    return float(response.outputs["y"].numpy().item())


def _numbers(id: int) -> Iterator[int]:
    return iter(range(id, id + 2 + id % 5))


@pytest.mark.contract("S-01", "S-13", "S-16")
@pytest.mark.parametrize("strategy", ["direct {}", "oldest { max_candidate_sequences: 4 }"])
@pytest.mark.parametrize("host", ["thread", "process"])
async def test_many_sequences_add_up_their_own_numbers(
    tmp_path: Path, strategy: str, host: str
) -> None:
    async def client(model: LoadedModel, id: int) -> bool:
        numbers, total = list(_numbers(id)), 0
        for at, x in enumerate(numbers):
            total += x
            if await _add(model, id, x, at, len(numbers)) != total:
                return False
        return True

    async with loaded(tmp_path, strategy, host) as model:
        right = await asyncio.gather(*(client(model, id) for id in range(1, 101)))
        assert all(right)
        assert max(model.statistics.batches) > 1


@pytest.mark.contract("S-16")
async def test_inputs_and_outputs_of_states_are_not_those_of_clients(tmp_path: Path) -> None:
    async with loaded(tmp_path, "direct {}") as model:
        assert [tensor.name for tensor in model.metadata([1]).inputs] == ["x"]
        assert [tensor.name for tensor in model.metadata([1]).outputs] == ["y"]
