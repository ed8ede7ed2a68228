"""What dynamic batching gains on a graph whose weights take longer to read than rows to compute."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from backends.onnxruntime import graphs
from penstock.core.request import InferenceRequest
from penstock.core.tensor import Tensor
from penstock.hosting.reaper import Reaper
from penstock.models.lifecycle import ModelLifecycle
from penstock.models.loader import ModelLoader
from penstock.models.repository import ModelRepository

_SIZE, _LAYERS, _REQUESTS = 1024, 4, 64
_CONFIG = """
backend: "onnxruntime" max_batch_size: 16 instance_group { count: 1 kind: KIND_CPU }
input { name: "x" data_type: TYPE_FP32 dims: %d }
output { name: "y" data_type: TYPE_FP32 dims: %d }
"""


def _write(directory: Path, more: str) -> None:
    names = ["x", *(f"h{n}" for n in range(1, _LAYERS)), "y"]
    nodes = [graphs.node("MatMul", (names[n], f"w{n}"), (names[n + 1],)) for n in range(_LAYERS)]
    weights = {f"w{n}": np.full((_SIZE, _SIZE), 1 / _SIZE, np.float32) for n in range(_LAYERS)}
    row = ("n", _SIZE)
    inputs = [graphs.value("x", TensorProto.FLOAT, row)]
    outputs = [graphs.value("y", TensorProto.FLOAT, row)]
    graphs.save(directory / "1" / "model.onnx", nodes, inputs, outputs, weights)
    (directory / "config.pbtxt").write_text(_CONFIG % (_SIZE, _SIZE) + more)


async def _seconds(lifecycle: ModelLifecycle, name: str) -> float:
    """CPU time of a number of requests that come together."""
    model, tensor = lifecycle.find(name, 1), Tensor.from_numpy(np.ones((1, _SIZE), np.float32))
    begun = time.process_time()
    streams = [model.infer(InferenceRequest(name, inputs={"x": tensor})) for _ in range(_REQUESTS)]
    for stream in streams:
        assert [r.outputs["y"].numpy()[0, 0] async for r in stream] == [pytest.approx(1.0)]
    return time.process_time() - begun


@pytest.mark.contract("D-19")
async def test_batches_cost_less_than_half_of_what_their_requests_would(tmp_path: Path) -> None:
    _write(tmp_path / "batched", "dynamic_batching { }")
    _write(tmp_path / "alone", "")
    lifecycle = ModelLifecycle(ModelRepository([tmp_path]), ModelLoader(lambda _: {}, Reaper()))
    await lifecycle.load_all(["batched", "alone"])
    rounds = [
        (await _seconds(lifecycle, "alone"), await _seconds(lifecycle, "batched")) for _ in range(4)
    ]
    alone, batched = (min(times) for times in zip(*rounds, strict=True))
    assert alone > 2 * batched
    await lifecycle.close()
