"""Execution providers of a session, and their options (contract C-24, B-02, B-03)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.backend import (
    Accelerator,
    ExecutionAccelerators,
    InstanceKind,
    ModelConfig,
    ModelLoadError,
)

logger = logging.getLogger(__name__)

Provider = tuple[str, dict[str, str]]

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
_GPU_PROVIDERS = {"cuda": CUDA, "tensorrt": "TensorrtExecutionProvider"}
_CPU_PROVIDERS = {"openvino": "OpenVINOExecutionProvider"}
_TENSORRT_OPTIONS = {
    "max_workspace_size_bytes": "trt_max_workspace_size",
    "minimum_segment_size": "trt_min_subgraph_size",
    "int8_calibration_table_name": "trt_int8_calibration_table_name",
    "int8_use_native_calibration_table": "trt_int8_use_native_calibration_table",
}
_PRECISIONS = {"FP32": {}, "FP16": {"trt_fp16_enable": "1"}, "INT8": {"trt_int8_enable": "1"}}


class Device(NamedTuple):
    """The device of an instance."""

    kind: str = InstanceKind.KIND_CPU
    id: int = 0


def providers(config: ModelConfig, device: Device, available: Sequence[str]) -> list[Provider]:
    """The providers in order of preference; the CPU, which runs everything, is always last."""
    chosen = [*_accelerators(config, device)]
    for name, _ in chosen:
        if name not in available:
            raise ModelLoadError(
                f"model '{config.name}' asks for {name}, which the installed onnxruntime does not "
                f"have; it has {', '.join(available)}"
            )
    if device.kind == InstanceKind.KIND_GPU and CUDA not in dict(chosen):
        chosen += _cuda(config, device, available)
    return [*chosen, (CPU, {})]


def _cuda(config: ModelConfig, device: Device, available: Sequence[str]) -> list[Provider]:
    if CUDA in available:
        return [(CUDA, {"device_id": str(device.id)})]
    if any(group.kind is InstanceKind.KIND_GPU for group in config.instance_group):
        raise ModelLoadError(
            f"model '{config.name}' has an instance group of KIND_GPU, but the installed "
            "onnxruntime runs on CPUs only; install onnxruntime-gpu in its place"
        )
    logger.warning("model '%s' runs on the CPU: onnxruntime has no %s", config.name, CUDA)
    return []


def _accelerators(config: ModelConfig, device: Device) -> Iterator[Provider]:
    asked = config.optimization.execution_accelerators if config.optimization else None
    asked = asked or ExecutionAccelerators()
    for accelerator in asked.gpu_execution_accelerator:
        name = _provider(accelerator, _GPU_PROVIDERS)
        if device.kind == InstanceKind.KIND_GPU:
            yield name, {"device_id": str(device.id)} | _gpu_options(accelerator)
    for accelerator in asked.cpu_execution_accelerator:
        yield (
            _provider(accelerator, _CPU_PROVIDERS),
            {"device_type": "CPU"} | {**accelerator.parameters},
        )


def _provider(accelerator: Accelerator, known: dict[str, str]) -> str:
    if accelerator.name not in known:
        raise ModelLoadError(f"unknown Execution Accelerator '{accelerator.name}' is requested")
    return known[accelerator.name]


def _gpu_options(accelerator: Accelerator) -> dict[str, str]:
    """The provider's own options; TensorRT's have other names in a configuration."""
    given = dict(accelerator.parameters)
    if accelerator.name != "tensorrt":
        return given
    precision = given.pop("precision_mode", "FP32")
    given.pop("max_cached_engines", None)  # engines are cached by input shape, without a limit
    if precision not in _PRECISIONS:
        raise ModelLoadError(f"unsupported precision mode '{precision}' is requested")
    return _PRECISIONS[precision] | {_TENSORRT_OPTIONS.get(n, n): v for n, v in given.items()}
