"""The GPU, the streams and the memory of a plan's instances."""

from __future__ import annotations

import asyncio
import gc
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from backends.tensorrt.asking import Open, asked, plan_config, rows_of
from backends.tensorrt.plans import write_double
from penstock.core.errors import (
    ModelLoadError,
)
from penstock.testing import running
from penstock_backends.tensorrt import TensorRtBackend


@pytest.mark.contract("C-22")
@pytest.mark.parametrize(("priority", "number"), [("MAX", -5), ("MIN", 0), ("DEFAULT", 0)])
async def test_streams_have_the_priority_of_the_model(
    gpu: Any, open_backend: Open, version: Path, priority: str, number: int
) -> None:
    write_double(version / "model.plan")
    await open_backend(plan_config(optimization={"priority": f"PRIORITY_{priority}"}))
    assert {stream.priority for stream in gpu.gpu.streams.values()} == {number}


@pytest.mark.contract("R-27")
async def test_a_gpu_has_the_file_of_its_capability(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    write_double(version / "hopper.plan")
    config = plan_config(cc_model_filenames={"9.0": "hopper.plan", "7.5": "turing.plan"})
    backend = await open_backend(config)
    assert (await asked(backend, rows_of(1)))[0].tolist() == (2 * rows_of(1)).tolist()
    gpu.gpu.capability = "8.0"
    with pytest.raises(
        ModelLoadError, match=r"unable to find '.*/model.plan' for model 'm' on a G"
    ):
        await open_backend(config)


@pytest.mark.contract("I-09")
async def test_a_plan_may_run_on_a_dla_core(gpu: Any, open_backend: Open, version: Path) -> None:
    write_double(version / "model.plan")
    backend = await open_backend(plan_config(), secondary_devices=(("KIND_NVDLA", 1),))
    assert (await asked(backend, rows_of(1)))[0].tolist() == (2 * rows_of(1)).tolist()
    with pytest.raises(ModelLoadError) as refused:
        await open_backend(plan_config(), secondary_devices=(("KIND_NVDLA", 2),))
    assert refused.value.message == (
        "unable to create TensorRT runtime with DLA Core ID: 2, available number of DLA cores: 2"
    )


async def test_instances_share_the_plan(gpu: Any, open_backend: Open, version: Path) -> None:
    import tensorrt

    write_double(version / "model.plan")
    config = plan_config()
    read: list[int] = []
    real = tensorrt.Runtime.deserialize_cuda_engine

    def deserialize(self: Any, serialized_engine: Any) -> Any:
        read.append(len(serialized_engine))
        return real(self, serialized_engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorrt.Runtime, "deserialize_cuda_engine", deserialize)
        both = [await open_backend(config), await open_backend(config)]
    assert len(read) == 1
    for backend in both:
        assert (await asked(backend, rows_of(2)))[0].tolist() == (2 * rows_of(2)).tolist()


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library that exports plugins."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler here")
    source, library = tmp_path / "plugin.c", tmp_path / "plugin.so"
    source.write_text("int getPluginCreators(void) { return 0; }")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.mark.contract("B-13")
async def test_plugins_are_loaded_once(
    gpu: Any, open_backend: Open, version: Path, library: Path
) -> None:
    import tensorrt

    write_double(version / "model.plan")
    for _ in range(2):
        await open_backend(plan_config(), settings={"plugins": f"{library};"})
    assert tensorrt.get_plugin_registry()._libraries == [str(library)]
    with pytest.raises(ModelLoadError, match=r"backend-config plugins: .*no.so"):
        await open_backend(plan_config(), settings={"plugins": f"{library};/no.so"})


@pytest.mark.contract("B-13")
@pytest.mark.parametrize("strategy", ["STATIC", "ON_PROFILE_CHANGE"])
async def test_contexts_have_the_strategy_of_the_model(
    gpu: Any, open_backend: Open, version: Path, strategy: str
) -> None:
    import tensorrt

    write_double(version / "model.plan")
    parameters = {"execution_context_allocation_strategy": {"string_value": strategy}}
    await open_backend(plan_config(parameters=parameters))
    contexts = [one for one in gc.get_objects() if type(one) is tensorrt.IExecutionContext]
    assert {one._strategy.name for one in contexts} == {strategy}


@pytest.mark.contract("B-20")
@pytest.mark.parametrize(("policy", "at_once"), [("BLOCKING", 2), ("DEVICE_BLOCKING", 1)])
async def test_instances_launch_side_by_side_or_take_turns(
    gpu: Any, version: Path, monkeypatch: pytest.MonkeyPatch, policy: str, at_once: int
) -> None:
    import tensorrt

    write_double(version / "model.plan")
    met = threading.Barrier(at_once)
    """Where launches wait for each other; with two it is passed only if both are launched."""
    real = tensorrt.IExecutionContext.execute_async_v3
    inside: list[int] = []
    most = 0

    def launch(self: Any, stream_handle: int) -> Any:
        nonlocal most
        inside.append(1)
        most = max(most, len(inside))
        met.wait(60)
        done = real(self, stream_handle)
        inside.pop()
        return done

    monkeypatch.setattr(tensorrt.IExecutionContext, "execute_async_v3", launch)
    where = (TensorRtBackend, plan_config(), version, {"execution-policy": policy})
    async with running(*where, kind="KIND_GPU") as one, running(*where, kind="KIND_GPU") as other:
        for _ in range(10):
            both = await asyncio.gather(*(asked(i.backend, rows_of(1)) for i in (one, other)))
            assert [rows[0].tolist() for rows in both] == [(2 * rows_of(1)).tolist()] * 2
    assert most == at_once
