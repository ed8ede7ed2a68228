"""Execution providers of a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
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


@pytest.mark.contract("B-03")
@pytest.mark.parametrize(
    ("precision", "options"),
    [
        ("FP32", {}),
        ("FP16", {"trt_fp16_enable": "1"}),
        ("BF16", {"trt_bf16_enable": "1"}),
        ("INT8", {"trt_int8_enable": "1"}),
    ],
)
def test_tensorrt_computes_in_the_precision_of_its_mode(
    precision: str, options: dict[str, str]
) -> None:
    config = _gpu(Accelerator("tensorrt", {"precision_mode": precision}))
    assert providers(config, GPU_1, ALL)[0] == (TENSORRT, {"device_id": "1", **options})


@pytest.mark.contract("B-02", "B-03")
@pytest.mark.parametrize(("text", "value"), [("true", "1"), ("On", "1"), ("FALSE", "0")])
def test_switches_of_providers_may_be_words(text: str, value: str) -> None:
    tensorrt = Accelerator("tensorrt", {"trt_engine_cache_enable": text})
    cuda = Accelerator("cuda", {"do_copy_in_default_stream": text, "tunable_op_enable": text})
    found = dict(providers(_gpu(tensorrt, cuda), GPU_1, ALL))
    assert found[TENSORRT] == {"device_id": "1", "trt_engine_cache_enable": value}
    assert found[CUDA] == {
        "device_id": "1",
        "do_copy_in_default_stream": value,
        "tunable_op_enable": text,  # of the provider alone
    }


@pytest.mark.contract("B-02")
def test_cuda_takes_the_older_form_of_its_options() -> None:
    given = graphs.parameters(
        cudnn_conv_algo_search="1",
        gpu_mem_limit="1000",
        arena_extend_strategy="1",
        do_copy_in_default_stream="true",
    )
    config = replace(_gpu(Accelerator("cuda", {"gpu_mem_limit": "5"})), parameters=given)
    assert providers(config, GPU_1, ALL)[0] == (
        CUDA,
        {
            "device_id": "1",
            "gpu_mem_limit": "1000",
            "cudnn_conv_algo_search": "HEURISTIC",
            "arena_extend_strategy": "kSameAsRequested",
            "do_copy_in_default_stream": "1",
        },
    )
    assert providers(config, Device(), ALL) == [(CPU, {})]


@pytest.mark.contract("B-02")
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"cudnn_conv_algo_search": "3"}, "unsupported cudnn_conv_algo_search value '3' is reques"),
        ({"arena_extend_strategy": "-1"}, "unsupported arena_extend_strategy value '-1' is reques"),
        ({"cudnn_conv_algo_search": "fast"}, "failed to convert 'fast' to integral number"),
        ({"do_copy_in_default_stream": "maybe"}, "failed to convert 'maybe' to boolean"),
    ],
)
def test_values_of_the_older_form_are_checked(given: dict[str, str], text: str) -> None:
    config = ModelConfig(name="m", parameters=graphs.parameters(**given))
    with pytest.raises(ModelLoadError, match=text):
        providers(config, GPU_1, ALL)


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
        (
            Accelerator("tensorrt", {"workspace": "1"}),
            "unknown parameter 'workspace' is provided for TensorRT Execution Accelerator",
        ),
        (
            Accelerator("tensorrt", {"trt_dla_enable": "2"}),
            "failed to convert '2' to boolean",
        ),
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
