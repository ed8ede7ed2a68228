"""Plans and configurations that are wrong, and GPUs that fail."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.tensor_models import graphs
from backends.tensorrt.asking import (
    Open,
    asked,
    completed_config,
    launches,
    plan_config,
    response_of,
    rows_of,
)
from backends.tensorrt.plans import write_double
from penstock.core.config import InstanceGroup, InstanceKind
from penstock.core.errors import (
    BackendNotInstalledError,
    ConfigError,
    InferenceError,
    InternalError,
    ModelLoadError,
)
from penstock_backends.tensorrt import TensorRtBackend


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "'.*model.plan' is empty"),
        (b"no plan at all", "unable to create TensorRT engine: .*kMAGIC_TAG failed.; '.*' must be"),
        (None, "unable to create TensorRT engine: IRuntime::deserializeCudaEngine: "),
    ],
    ids=["empty", "foreign", "truncated"],
)
async def test_broken_plans_are_refused_with_the_reason(
    open_backend: Open, version: Path, content: bytes | None, why: str
) -> None:
    path = write_double(version / "model.plan")
    path.write_bytes(path.read_bytes()[:-40] if content is None else content)
    with pytest.raises(ModelLoadError, match=why):
        await open_backend(plan_config())
    with pytest.raises(ModelLoadError, match=why):
        await completed_config(version)


@pytest.mark.contract("B-13")
async def test_a_plan_of_another_version_has_to_be_compatible_and_allowed(
    open_backend: Open, version: Path
) -> None:
    write_double(version / "model.plan", version="10.3.0", compatible=True)
    with pytest.raises(ModelLoadError, match=r"Version: 10.3.0; .* TensorRT 11.4.* version-compat"):
        await open_backend(plan_config())
    allowed = {"version-compatible": "true"}
    backend = await open_backend(plan_config(), settings=allowed)
    assert (await asked(backend, rows_of(1)))[0].tolist() == (2 * rows_of(1)).tolist()
    write_double(version / "model.plan", version="10.3.0")
    with pytest.raises(ModelLoadError, match="Version tag does not match"):
        await open_backend(plan_config(), settings=allowed)


WRONG = [
    (
        {"input": [{"name": "z"}]},
        "unexpected inference input 'z' for model 'm', allowed inputs are",
    ),
    ({"output": [{"name": "z"}]}, "unexpected inference output 'z' for model 'm', allowed outputs"),
    (
        {"input": [{"name": "x", "data_type": "TYPE_INT32", "dims": [4]}]},
        "configuration expects datatype TYPE_INT32 for input 'x', model provides TYPE_FP32",
    ),
    (
        {"input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [4, 1]}]},
        r"the model expects shape \[-1,4\] but the model configuration specifies shape",
    ),
]


@pytest.mark.parametrize(("fields", "why"), WRONG)
async def test_wrong_tensors_are_refused(
    open_backend: Open, version: Path, fields: dict[str, Any], why: str
) -> None:
    write_double(version / "model.plan")
    with pytest.raises(ModelLoadError, match=why):
        await open_backend(plan_config(**fields))


async def test_datatypes_that_nothing_serves_are_refused(open_backend: Open, version: Path) -> None:
    write_double(version / "model.plan", dtype="FP8")
    with pytest.raises(ModelLoadError, match="tensor 'x' is of type FP8, which cannot be served"):
        await open_backend(plan_config())


@pytest.mark.parametrize("kind", [InstanceKind.KIND_CPU, InstanceKind.KIND_MODEL])
async def test_other_devices_are_refused(kind: InstanceKind, version: Path) -> None:
    config = replace(plan_config(), instance_group=(InstanceGroup(kind=kind),))
    why = (
        "unable to load model 'm', TensorRT backend supports only GPU device; without a GPU, serve"
    )
    with pytest.raises(ConfigError, match=why):
        TensorRtBackend.check_config(config)
    with pytest.raises(ConfigError, match=why):
        await TensorRtBackend.complete_config(config, version, {})


async def test_a_gpu_that_is_not_there_is_told(open_backend: Open, version: Path, gpu: Any) -> None:
    write_double(version / "model.plan")
    gpu.gpu.gpus = 0
    with pytest.raises(ModelLoadError) as refused:
        await open_backend(plan_config())
    assert refused.value.message == (
        "model 'm': TensorRT runs on GPUs of NVIDIA only, and GPU 0 cannot be used: invalid device"
        " ordinal; without a GPU, serve the ONNX model that the plan was built of with backend"
        " 'onnxruntime'"
    )


@pytest.mark.parametrize("package", ["tensorrt", "cuda.bindings.runtime"])
async def test_a_package_that_is_not_there_is_told(
    gpu: Any, open_backend: Open, version: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    write_double(version / "model.plan")
    monkeypatch.setitem(sys.modules, package, None)
    why = r"install them with: pip install 'penstock\[tensorrt\]' \(.*; without a GPU, serve"
    with pytest.raises(BackendNotInstalledError, match=why):
        await open_backend(plan_config())


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"coalesce-request-input": "maybe"}, "coalesce-request-input must be true or false"),
        ({"version-compatible": "maybe"}, "version-compatible must be true or false"),
        ({"execution-policy": "FREE"}, "execution-policy must be DEVICE_BLOCKING or BLOCKING, not"),
    ],
)
async def test_wrong_settings_are_refused(
    open_backend: Open, version: Path, settings: dict[str, str], why: str
) -> None:
    write_double(version / "model.plan")
    with pytest.raises(ConfigError, match=why):
        await open_backend(plan_config(), settings=settings)


def test_wrong_strategies_are_refused() -> None:
    parameters = {"execution_context_allocation_strategy": {"string_value": "USER_MANAGED"}}
    with pytest.raises(ConfigError, match="must be STATIC or ON_PROFILE_CHANGE, not 'USER_MANAGED"):
        TensorRtBackend.check_config(plan_config(parameters=parameters))


@pytest.mark.parametrize("side", ["input", "output"])
async def test_memory_that_is_not_there_is_an_error_of_the_load(
    gpu: Any, open_backend: Open, version: Path, side: str
) -> None:
    write_double(version / "model.plan")
    gpu.gpu.most_bytes = 100 if side == "input" else 200
    name = {"input": "x", "output": "y"}[side]
    with pytest.raises(ModelLoadError) as refused:
        await open_backend(plan_config())
    assert refused.value.message == (
        f"unable to allocate memory for {side} '{name}' for m_0_0: out of memory"
    )
    gpu.gpu.most_bytes = 1 << 20
    assert len(await asked(await open_backend(plan_config()), rows_of(1))) == 1


async def test_a_gpu_that_fails_meanwhile_fails_the_load(
    gpu: Any, open_backend: Open, version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_double(version / "model.plan")
    failed = (gpu.cudaError_t.cudaErrorMemoryAllocation, None)
    monkeypatch.setattr(gpu, "cudaEventCreateWithFlags", lambda *_: failed)
    with pytest.raises(ModelLoadError, match="unable to open 'm_0_0' on GPU 0: out of memory"):
        await open_backend(plan_config())


FAILURES: list[tuple[str, str, Any, str]] = [
    (
        "ICudaEngine",
        "create_execution_context",
        None,
        "unable to create TensorRT context: no reason was given",
    ),
    (
        "IExecutionContext",
        "set_optimization_profile_async",
        False,
        r"Can not set the specified optimization profile default\[0\] for m_0_0: no reason",
    ),
    (
        "IExecutionContext",
        "set_input_shape",
        False,
        r"trt failed to set binding dimension to \[8,4\] for input 'x' for m_0_0: no reason",
    ),
    (
        "IExecutionContext",
        "infer_shapes",
        ["x"],
        "failed to specify the dimensions of all input bindings: x",
    ),
    (
        "IExecutionContext",
        "infer_shapes",
        RuntimeError("division by zero"),
        "unable to infer shapes for m_0_0: division by zero",
    ),
]


@pytest.mark.parametrize(("kind", "method", "answer", "why"), FAILURES)
async def test_what_tensorrt_refuses_fails_the_load(
    open_backend: Open, version: Path, kind: str, method: str, answer: Any, why: str
) -> None:
    import tensorrt

    def refusing(*_: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    write_double(version / "model.plan")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(getattr(tensorrt, kind), method, refusing)
        with pytest.raises(InferenceError, match=why):
            await open_backend(plan_config())


@pytest.mark.contract("C-23")
async def test_a_plan_that_cannot_be_captured_runs_without_graphs(
    gpu: Any, open_backend: Open, version: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import tensorrt

    write_double(version / "model.plan")
    real = tensorrt.IExecutionContext.execute_async_v3

    def uncaptured(self: Any, stream_handle: int) -> bool:
        if gpu.gpu.streams[stream_handle].captured is not None:
            return False
        return bool(real(self, stream_handle))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorrt.IExecutionContext, "execute_async_v3", uncaptured)
        backend = await open_backend(plan_config(optimization={"cuda": {"graphs": True}}))
        assert "unable to record CUDA graph: unable to enqueue for inference m_0_0" in caplog.text
        assert (await asked(backend, rows_of(1)))[0].tolist() == (2 * rows_of(1)).tolist()
    assert not launches(gpu)


async def test_a_run_that_fails_harms_no_other(
    gpu: Any, open_backend: Open, version: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import tensorrt

    write_double(version / "model.plan")
    backend = await open_backend(plan_config())

    def full(self: Any, stream_handle: int) -> bool:
        self._engine._logger.log(tensorrt.ILogger.ERROR, "Cuda Runtime (out of memory)")
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorrt.IExecutionContext, "execute_async_v3", full)
        with pytest.raises(InternalError) as failed:
            await asked(backend, rows_of(1))
    assert failed.value.message == (
        "unable to enqueue for inference m_0_0: Cuda Runtime (out of memory)"
    )
    assert ("penstock_backends.tensorrt.plan", logging.ERROR) in [
        (record.name, record.levelno) for record in caplog.records
    ]
    assert (await asked(backend, rows_of(1)))[0].tolist() == (2 * rows_of(1)).tolist()


async def test_a_gpu_that_has_failed_fails_requests(
    gpu: Any, open_backend: Open, version: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_double(version / "model.plan")
    backend = await open_backend(plan_config())
    gpu.gpu.failure = gpu.cudaError_t.cudaErrorIllegalAddress
    why = "failed to run TRT inference for m_0_0: an illegal memory access was encountered"
    assert await backend.healthy()
    with pytest.raises(InternalError, match=why):
        await asked(backend, rows_of(1))
    assert not await backend.healthy()
    await backend.finalize()
    assert "cudaFree on GPU 0: an illegal memory access was encountered" in caplog.messages
    gpu.reset()


@pytest.mark.contract("C-27")
async def test_a_batch_is_prepared_while_another_computes(
    open_backend: Open, version: Path
) -> None:
    write_double(version / "model.plan")
    backend = await open_backend(plan_config(optimization={"eager_batching": True}))
    first = await backend.execute([graphs.request(x=rows_of(1))])
    second = await backend.execute([graphs.request(x=rows_of(2))])  # nobody has read the first
    assert [(await response_of(one)).outputs["y"].shape for one in (*second, *first)] == [
        (2, 4),
        (1, 4),
    ]
    wrong = await backend.execute([graphs.request(x=rows_of(9))])
    with pytest.raises(InternalError, match="between 1 and 8 but received 9"):
        await response_of(wrong[0])


async def test_what_nobody_reads_is_waited_for_at_the_end(
    open_backend: Open, version: Path
) -> None:
    write_double(version / "model.plan")
    backend = await open_backend(plan_config(optimization={"eager_batching": True}))
    outcomes = await backend.execute([graphs.request(x=rows_of(1))])
    assert len(outcomes) == 1  # the fixture sees that all was given back
