"""Instances of a Python model on GPUs: each is told its device, and moves to it itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from penstock.core.request import InferenceRequest
from penstock.core.tensor import Tensor
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.repository.repository import ModelRepository
from penstock.system.reaper import Reaper

_CONFIG = """
backend: "python"
input { name: "X" data_type: TYPE_FP32 dims: 1 }
output { name: "SEEN" data_type: TYPE_STRING dims: 1 }
instance_group { kind: KIND_GPU gpus: [ 1 ] }
"""
_MODEL = """
import json
import os
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.seen = {name: args[f"model_instance_{name}"] for name in ("kind", "device_id", "name")}
        self.seen["visible"] = os.environ.get("CUDA_VISIBLE_DEVICES")

    def execute(self, requests):
        text = np.array([json.dumps(self.seen).encode()], np.object_)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SEEN", text)]) for _ in requests]
"""


@pytest.mark.slow
@pytest.mark.contract("PY-41")
async def test_the_model_is_told_its_device_and_is_not_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing hides the other devices from its process."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(_CONFIG)
    (tmp_path / "m" / "1" / "model.py").write_text(_MODEL)
    reaper = Reaper()
    builder = VersionBuilder(lambda _: {}, reaper, gpus=(0, 1))
    model = await builder.build(ModelRepository([tmp_path]).read("m"), 1)
    try:
        given = InferenceRequest("m", inputs={"X": Tensor.from_numpy(np.ones(1, np.float32))})
        (response,) = [each async for each in model.infer(given)]
        (seen,) = response.outputs["SEEN"].elements()
        told = json.loads(seen)
    finally:
        await model.stop()
        reaper.close()
    assert told == {"kind": "GPU", "device_id": "1", "name": "m_0_0_gpu1", "visible": "0,1"}
