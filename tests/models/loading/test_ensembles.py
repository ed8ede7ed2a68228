"""Ensembles over models that were loaded from files."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes import FakeBackend, InstallBackend, Script, make_request
from penstock.caching.local import LocalCache
from penstock.core.backend import Traits
from penstock.core.device_tensor import DeviceTensor
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import Tensor
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.system.reaper import Reaper


class Sharing(FakeBackend):
    """Leaves its output on a device where it may, and hands on what is on one."""

    traits = Traits(takes_device_tensors=True)

    async def execute(self, requests: Sequence[InferenceRequest]) -> Any:
        await super().execute(requests)
        return [InferenceResponse({"OUT": self._output(request)}) for request in requests]

    def _output(self, request: InferenceRequest) -> Tensor:
        given = request.inputs["IN"]
        if "OUT" not in request.on_device:
            return Tensor.from_numpy(given.numpy())
        return DeviceTensor(given.datatype, given.shape, given.device or object(), given.numpy)


_TENSORS = """
max_batch_size: 8
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
output { name: "OUT" data_type: TYPE_INT32 dims: -1 }
"""
_STEP = """step { model_name: "%s" model_version: -1
    input_map { key: "IN" value: "%s" } output_map { key: "OUT" value: "%s" } } """
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
    lifecycle = ModelLifecycle(ModelRepository([tmp_path]), VersionBuilder(lambda _: {}, Reaper()))
    await lifecycle.load("whole")
    whole = lifecycle.catalog.find("whole", 1)
    streams = [whole.infer(make_request(id)) for id in "abc"]
    for stream in streams:
        assert [[*response.outputs] async for response in stream] == [["OUT"]]
    assert script.batches == [["a", "b", "c"]]
    assert whole.config.instance_group == ()
    assert len(script.contexts) == 1
    await asyncio.wait_for(lifecycle.close(), 20)


async def test_inputs_of_an_ensemble_are_read_by_its_models(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    install_backend("fake", Script().backend)
    for name, config in (("part", _PART), ("whole", _ENSEMBLE)):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(config + _TENSORS)
    lifecycle = ModelLifecycle(ModelRepository([tmp_path]), VersionBuilder(lambda _: {}, Reaper()))
    await lifecycle.load("whole")
    readers = lifecycle.catalog.readers_of
    assert readers("whole") == {"whole", "part"}
    assert readers("part") == {"part"}
    assert readers("unknown") == frozenset()
    await asyncio.wait_for(lifecycle.close(), 20)


@pytest.mark.contract("E-21")
async def test_outputs_have_the_labels_of_the_models_that_make_them(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    """A label file of the ensemble's own goes first."""
    script = Script(answer=lambda r: InferenceResponse({"OUT": r.inputs["IN"]}))
    install_backend("fake", script.backend)
    labelled = _TENSORS.replace("dims: -1 }\n", 'dims: -1 label_filename: "labels.txt" }\n')
    labelled = labelled.replace('label_filename: "labels.txt" ', "", 1)  # of the input
    for name, config, labels in (
        ("part", _PART + labelled, "dog"),
        ("whole", _ENSEMBLE + _TENSORS, ""),
        ("own", _ENSEMBLE + labelled, "cat"),
    ):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(config)
        (tmp_path / name / "labels.txt").write_text(labels)
    lifecycle = ModelLifecycle(ModelRepository([tmp_path]), VersionBuilder(lambda _: {}, Reaper()))
    found = []
    for name in ("whole", "own"):
        await lifecycle.load(name)
        request = make_request("a", classes={"OUT": 1})
        (answer,) = [r async for r in lifecycle.catalog.find(name, 1).infer(request)]
        found += answer.outputs["OUT"].elements()
    assert [text.rpartition(b":")[2] for text in found] == [b"dog", b"cat"]
    await asyncio.wait_for(lifecycle.close(), 20)


async def _seen(
    path: Path, install: InstallBackend, models: Sequence[str]
) -> tuple[list[Any], list[frozenset[str]], Any]:
    """What models of a chain get from each other: on a device, or not; and the chain's answer.

    `shares` takes tensors of devices; the ensemble `own` does not, whose one step it is.
    """
    inputs: list[Any] = []
    allowed: list[frozenset[str]] = []

    def look(request: InferenceRequest) -> InferenceResponse:
        inputs.append(request.inputs["IN"].device)
        allowed.append(request.on_device)
        return InferenceResponse({"OUT": request.inputs["IN"]})

    script = Script(answer=look)
    install("sharing", type("Scripted", (Sharing,), {"script": script}))
    names = ["IN", *(f"T{n}" for n in range(1, len(models))), "OUT"]
    steps = "".join(_STEP % each for each in zip(models, names, names[1:], strict=False))
    chain = f'platform: "ensemble" ensemble_scheduling {{ {steps} }}'
    own = f'platform: "ensemble" ensemble_scheduling {{ {_STEP % ("shares", "IN", "OUT")} }}'
    for name, config in (("chain", chain), ("shares", 'backend: "sharing" '), ("own", own)):
        (path / name / "1").mkdir(parents=True)
        (path / name / "config.pbtxt").write_text(config + _TENSORS)
    lifecycle = ModelLifecycle(ModelRepository([path]), VersionBuilder(lambda _: {}, Reaper()))
    await lifecycle.load("chain")
    (response,) = [r async for r in lifecycle.catalog.find("chain", 1).infer(make_request())]
    await lifecycle.close()
    return inputs, allowed, response.outputs["OUT"].numpy().tolist()


async def test_a_tensor_stays_on_the_device_between_models_that_share_it(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    models = ["shares", "shares", "shares"]
    inputs, allowed, answer = await _seen(tmp_path, install_backend, models)
    assert inputs[0] is None
    assert inputs[1] is inputs[2] is not None
    assert allowed == [frozenset(("OUT",)), frozenset(("OUT",)), frozenset()]
    assert answer == [[0]]


async def test_a_model_behind_a_cache_shares_no_device(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    install_backend("sharing", type("Scripted", (Sharing,), {"script": Script()}))
    (tmp_path / "m" / "1").mkdir(parents=True)
    found = []
    for more in ("", "response_cache { enable: true }"):
        (tmp_path / "m" / "config.pbtxt").write_text(f'backend: "sharing" {more} {_TENSORS}')
        builder = VersionBuilder(lambda _: {}, Reaper(), cache=LocalCache(10_000))
        lifecycle = ModelLifecycle(ModelRepository([tmp_path]), builder)
        await lifecycle.load("m")
        found.append(lifecycle.catalog.find("m", 1).takes_device_tensors)
        await lifecycle.close()
    assert found == [True, False]


async def test_a_tensor_that_others_take_as_well_comes_to_the_host(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    inputs, allowed, _ = await _seen(tmp_path, install_backend, ["shares", "own", "shares"])
    assert inputs == [None, None, None]
    assert allowed == [frozenset()] * 3
