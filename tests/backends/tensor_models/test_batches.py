"""Dynamic batching makes few runs of many requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backends.tensor_models import graphs
from penstock.core.request import InferenceRequest
from penstock.core.tensor import Tensor
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.system.reaper import Reaper

_REQUESTS = 64
_CONFIG = """
backend: "onnxruntime" max_batch_size: 16 instance_group { count: 1 kind: KIND_CPU }
input { name: "x" data_type: TYPE_FP32 dims: 2 }
output { name: "y" data_type: TYPE_FP32 dims: 2 }
"""


async def _runs(directory: Path, more: str) -> int:
    """Executions of a graph for a number of requests that come together."""
    graphs.save_identity(directory / "m" / "1" / "model.onnx", shape=("n", 2))
    (directory / "m" / "config.pbtxt").write_text(_CONFIG + more)
    lifecycle = ModelLifecycle(ModelRepository([directory]), VersionBuilder(lambda _: {}, Reaper()))
    await lifecycle.load_all(["m"])
    model = lifecycle.catalog.find("m", 1)
    rows = [Tensor.from_numpy(np.full((1, 2), n, np.float32)) for n in range(_REQUESTS)]
    streams = [model.infer(InferenceRequest("m", inputs={"x": row})) for row in rows]
    for number, stream in enumerate(streams):
        assert [r.outputs["y"].numpy()[0, 0] async for r in stream] == [number]
    await lifecycle.close()
    return model.statistics.execution_count


@pytest.mark.contract("D-01", "D-02")
async def test_batches_are_few_runs_of_many_requests(tmp_path: Path) -> None:
    assert await _runs(tmp_path / "alone", "") == _REQUESTS
    assert await _runs(tmp_path / "batched", "dynamic_batching { }") <= _REQUESTS // 16 + 1
