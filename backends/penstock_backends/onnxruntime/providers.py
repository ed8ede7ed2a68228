"""Execution providers of a session, and their options (contract C-24, B-02, B-03)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
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
_TENSORRT = "trt_"
_TENSORRT_OPTIONS = {
    "max_workspace_size_bytes": "trt_max_workspace_size",
    "minimum_segment_size": "trt_min_subgraph_size",
    "int8_calibration_table_name": "trt_int8_calibration_table_name",
    "int8_use_native_calibration_table": "trt_int8_use_native_calibration_table",
}
_PRECISIONS = {
    "FP32": {},
    "FP16": {"trt_fp16_enable": "1"},
    "BF16": {"trt_bf16_enable": "1"},
    "INT8": {"trt_int8_enable": "1"},
}
_SWITCHES = frozenset(
    (
        "do_copy_in_default_stream",
        "trt_detailed_build_log",
        "trt_dump_ep_context_model",
        "trt_dump_subgraphs",
        "trt_force_sequential_engine_build",
        "trt_force_timing_cache",
        "trt_int8_use_native_calibration_table",
        "trt_layer_norm_fp32_fallback",
        "use_ep_level_unified_stream",
    )
)
"""Options that are true or false, beside those of TensorRT whose names end in `_enable`."""
_BOOLEANS = {"true": "1", "on": "1", "1": "1", "false": "0", "off": "0", "0": "0"}
_CUDA_PARAMETERS: Mapping[str, Sequence[str]] = {
    "cudnn_conv_algo_search": ("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
    "gpu_mem_limit": (),
    "arena_extend_strategy": ("kNextPowerOfTwo", "kSameAsRequested"),
    "do_copy_in_default_stream": (),
}
"""Options of CUDA in the model's parameters, and what numbers mean: the older form of Triton's."""


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
    for name, options in chosen:
        if name == CUDA:
            options.update(_cuda_parameters(config))
    return [*chosen, (CPU, {})]


def check_accelerators(config: ModelConfig) -> None:
    """Raise `ModelLoadError` for accelerators and options that no build of the engine has."""
    known = (CPU, *_GPU_PROVIDERS.values(), *_CPU_PROVIDERS.values())
    for group in config.instance_group:
        providers(config, Device(group.kind), known)


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
        return _with_switches(given)
    precision = given.pop("precision_mode", "FP32")
    given.pop("max_cached_engines", None)  # engines are cached by input shape, without a limit
    if precision not in _PRECISIONS:
        raise ModelLoadError(f"unsupported precision mode '{precision}' is requested")
    for name in given:
        if name not in _TENSORRT_OPTIONS and not name.startswith(_TENSORRT):
            raise ModelLoadError(
                f"unknown parameter '{name}' is provided for TensorRT Execution Accelerator"
            )
    options = {_TENSORRT_OPTIONS.get(name, name): text for name, text in given.items()}
    return _PRECISIONS[precision] | _with_switches(options)


def _with_switches(options: Mapping[str, str]) -> dict[str, str]:
    """The options, those that are true or false as the 1 and 0 that each provider reads."""
    return {name: _switch(text) if _is_switch(name) else text for name, text in options.items()}


def _is_switch(name: str) -> bool:
    return name in _SWITCHES or (name.startswith(_TENSORRT) and name.endswith("_enable"))


def _switch(text: str) -> str:
    if text.lower() not in _BOOLEANS:
        raise ModelLoadError(f"failed to convert '{text}' to boolean")
    return _BOOLEANS[text.lower()]


def _cuda_parameters(config: ModelConfig) -> dict[str, str]:
    """CUDA's options in the parameters of the model, which go before the accelerator's."""
    given = {name: config.parameter(name) for name in _CUDA_PARAMETERS}
    return _with_switches(
        {name: _cuda_value(name, text) for name, text in given.items() if text is not None}
    )


def _cuda_value(name: str, text: str) -> str:
    values = _CUDA_PARAMETERS[name]
    if not values:
        return text
    try:
        number = int(text)
    except ValueError as error:
        raise ModelLoadError(f"failed to convert '{text}' to integral number") from error
    if not 0 <= number < len(values):
        raise ModelLoadError(f"unsupported {name} value '{number}' is requested")
    return values[number]
