"""Execution providers of a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from backends.tensor_models import graphs
from penstock.core.config import (
    Accelerator,
    ExecutionAccelerators,
    InstanceGroup,
    InstanceKind,
    ModelConfig,
    Optimization,
)
from penstock.core.errors import ModelLoadError
from penstock.core.tensor import DataType
from penstock_backends.onnxruntime import OnnxRuntimeBackend
from penstock_backends.onnxruntime.providers import Device, providers

CPU, CUDA, OPENVINO = "CPUExecutionProvider", "CUDAExecutionProvider", "OpenVINOExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
ALL = [TENSORRT, CUDA, OPENVINO, CPU]
GPU_1 = Device("KIND_GPU", 1)
OPENVINO_ON_CPU = Optimization(
    execution_accelerators=ExecutionAccelerators(
        cpu_execution_accelerator=(Accelerator("openvino"),)
    )
)


def _gpu(*accelerators: Accelerator) -> ModelConfig:
    asked = ExecutionAccelerators(gpu_execution_accelerator=accelerators)
    return ModelConfig(name="m", optimization=Optimization(execution_accelerators=asked))


def test_a_cpu_needs_no_more_than_itself() -> None:
    assert providers(ModelConfig(name="m"), Device(), ALL) == [(CPU, {})]


@pytest.mark.contract("B-02")
def test_a_gpu_uses_cuda_on_its_device() -> None:
    assert providers(ModelConfig(name="m"), GPU_1, ALL) == [(CUDA, {"device_id": "1"}), (CPU, {})]


@pytest.mark.contract("C-24")
def test_accelerators_are_preferred_in_their_order() -> None:
    config = _gpu(Accelerator("tensorrt"), Accelerator("cuda", {"gpu_mem_limit": "1000"}))
    assert providers(config, GPU_1, ALL) == [
        (TENSORRT, {"device_id": "1"}),
        (CUDA, {"device_id": "1", "gpu_mem_limit": "1000"}),
        (CPU, {}),
    ]


@pytest.mark.contract("B-03")
def test_tensorrt_takes_the_parameters_that_triton_documents() -> None:
    given = {
        "precision_mode": "FP16",
        "max_workspace_size_bytes": "64",
        "max_cached_engines": "2",
        "trt_engine_cache_enable": "1",
    }
    (name, options), *_ = providers(_gpu(Accelerator("tensorrt", given)), Device("KIND_GPU"), ALL)
    assert name == TENSORRT
    assert options == {
        "device_id": "0",
        "trt_fp16_enable": "1",
        "trt_max_workspace_size": "64",
        "trt_engine_cache_enable": "1",
    }


def test_accelerators_of_gpus_do_not_concern_a_cpu() -> None:
    assert providers(_gpu(Accelerator("cuda")), Device(), [CPU]) == [(CPU, {})]


@pytest.mark.contract("B-04")
def test_openvino_runs_on_the_cpu() -> None:
    config = ModelConfig(name="m", optimization=OPENVINO_ON_CPU)
    assert providers(config, Device(), ALL) == [(OPENVINO, {"device_type": "CPU"}), (CPU, {})]


async def test_a_provider_that_is_not_installed_is_named(
    open_backend: Callable[..., Awaitable[OnnxRuntimeBackend]], version: Path
) -> None:
    graphs.save_identity(version / "model.onnx")
    config = graphs.identity_config(DataType.FP32, 2, optimization=OPENVINO_ON_CPU)
    with pytest.raises(ModelLoadError, match=f"model 'same' asks for {OPENVINO}.*it has.*{CPU}"):
        await open_backend(config)


@pytest.mark.parametrize(
    ("accelerator", "text"),
    [
        (Accelerator("gpu_io"), "unknown Execution Accelerator 'gpu_io' is requested"),
        (Accelerator("tensorrt", {"precision_mode": "FP4"}), "precision mode 'FP4'"),
    ],
)
def test_unknown_accelerators_are_refused(accelerator: Accelerator, text: str) -> None:
    with pytest.raises(ModelLoadError, match=text):
        providers(_gpu(accelerator), GPU_1, ALL)


def test_a_gpu_that_is_asked_for_is_not_replaced_by_the_cpu() -> None:
    config = ModelConfig(name="m", instance_group=(InstanceGroup(kind=InstanceKind.KIND_GPU),))
    with pytest.raises(ModelLoadError, match="install onnxruntime-gpu"):
        providers(config, GPU_1, [CPU])


def test_a_gpu_that_was_not_configured_is_optional(caplog: pytest.LogCaptureFixture) -> None:
    assert providers(ModelConfig(name="m"), GPU_1, [CPU]) == [(CPU, {})]
    assert "model 'm' runs on the CPU" in caplog.text
