"""Ensembles over models that were loaded from files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fakes import InstallBackend, Script, make_request
from penstock.core.request import InferenceResponse
from penstock.hosting.reaper import Reaper
from penstock.models.lifecycle import ModelLifecycle
from penstock.models.loader import ModelLoader
from penstock.models.repository import ModelRepository

_TENSORS = """
max_batch_size: 8
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
output { name: "OUT" data_type: TYPE_INT32 dims: -1 }
"""
_PART = 'backend: "fake" instance_group { count: 1 } dynamic_batching { }'
_ENSEMBLE = """platform: "ensemble" ensemble_scheduling { step { model_name: "part"
    model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } }
"""


@pytest.mark.contract("E-06")
async def test_requests_of_an_ensemble_are_batched_by_its_models(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    script = Script(answer=lambda r: InferenceResponse({"OUT": r.inputs["IN"]}))
    install_backend("fake", script.backend)
    for name, config in (("part", _PART), ("whole", _ENSEMBLE)):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(config + _TENSORS)
    lifecycle = ModelLifecycle(ModelRepository([tmp_path]), ModelLoader(lambda _: {}, Reaper()))
    await lifecycle.load("whole")
    whole = lifecycle.find("whole", 1)
    streams = [whole.infer(make_request(id)) for id in "abc"]
    for stream in streams:
        assert [[*response.outputs] async for response in stream] == [["OUT"]]
    assert script.batches == [["a", "b", "c"]]
    assert whole.config.instance_group == ()
    assert len(script.contexts) == 1
    await asyncio.wait_for(lifecycle.close(), 5)
