"""The worth of dynamic batching to a model that computes the rows of a batch together.

The identity backend's delay stands for the computation; the time is made up, so that the figures
are the batcher's own. `loadtest/scenarios/batching.py` measures an encoder with real time.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from fakes import in_virtual_time
from penstock.core.request import InferenceRequest
from penstock.core.tensor import Tensor
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.models.serving.loaded_model import LoadedModel
from penstock.system.reaper import Reaper

_CONFIG = """
backend: "identity" max_batch_size: 4 instance_group { count: 1 kind: KIND_CPU }
input { name: "IN" data_type: TYPE_FP32 dims: 2 }
output { name: "OUT" data_type: TYPE_FP32 dims: 2 }
parameters { key: "execute_delay_ms" value: { string_value: "10" } }
"""
_CLIENTS, _REQUESTS = 8, 25


async def _requests_per_second(directory: Path, more: str) -> float:
    """The rate of clients that each send one request after the other."""
    (directory / "m" / "1").mkdir(parents=True)
    (directory / "m" / "config.pbtxt").write_text(_CONFIG + more)
    lifecycle = ModelLifecycle(ModelRepository([directory]), VersionBuilder(lambda _: {}, Reaper()))
    await lifecycle.load_all(["m"])
    model = lifecycle.catalog.find("m", 1)
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*[_ask(model) for _ in range(_CLIENTS)])
    seconds = asyncio.get_running_loop().time() - began
    await lifecycle.close()
    return _CLIENTS * _REQUESTS / seconds


async def _ask(model: LoadedModel) -> None:
    row = Tensor.from_numpy(np.zeros((1, 2), np.float32))
    for _ in range(_REQUESTS):
        async for _ in model.infer(InferenceRequest("m", inputs={"IN": row})):
            pass


@pytest.mark.contract("D-19")
@in_virtual_time
async def test_a_batcher_of_four_rows_answers_four_times_as_many(tmp_path: Path) -> None:
    off = await _requests_per_second(tmp_path / "off", "")
    on = await _requests_per_second(tmp_path / "on", "dynamic_batching { }")
    assert [off, on] == pytest.approx([100, 400], rel=0.1)
