"""The GPUs of an instance, which vLLM finds in the environment when it is imported."""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping
from typing import Final

from penstock.backend import ModelConfig, ModelLoadError
from penstock_backends.language_model.visible_gpu import see_only
from penstock_backends.vllm.arguments.engine_args import EngineArguments

PARAMETER: Final = "GPU_DEVICE_IDS"
"""The parameter of a configuration that names the GPUs of its instances, as in `0,1` (VL-18)."""

_GPU: Final = "KIND_GPU"


def pin_devices(
    arguments: EngineArguments,
    config: ModelConfig,
    kind: str,
    device_id: int,
    environment: MutableMapping[str, str] = os.environ,
) -> None:
    """Let an instance see its own GPUs only: that of KIND_GPU (VL-17), or those that are named.

    Any other sees them all. Raises `ModelLoadError` for GPUs that the engine cannot use.
    """
    if devices := devices_of(arguments, config, kind, device_id):
        see_only(devices, environment)


def devices_of(
    arguments: EngineArguments, config: ModelConfig, kind: str, device_id: int
) -> list[int]:
    """The GPUs of an instance, empty for all; raises `ModelLoadError`, as `pin_devices` does."""
    named = (config.parameter(PARAMETER) or "").strip()
    if kind == _GPU:
        _check_single(arguments, named)
        return [device_id]
    return _numbers(named, arguments) if named else []


def _check_single(arguments: EngineArguments, named: str) -> None:
    if arguments.devices > 1:
        raise ModelLoadError(
            "KIND_GPU is currently for single-GPU models, please specify KIND_MODEL "
            "in the model's config.pbtxt for multi-GPU models"
        )
    if named:
        raise ModelLoadError(
            f"parameter '{PARAMETER}' is for instances of KIND_MODEL; one of {_GPU} has the GPU "
            "that 'gpus' of its instance group names"
        )


def _numbers(named: str, arguments: EngineArguments) -> list[int]:
    """The numbers of the GPUs, of which an engine over several needs just so many."""
    if not re.fullmatch(r"\d+(\s*,\s*\d+)*", named, re.ASCII):
        raise ModelLoadError(
            f"parameter '{PARAMETER}' must be numbers of GPUs, as in '0,1', not '{named}'"
        )
    numbers = [int(number) for number in named.split(",")]
    if len(set(numbers)) < len(numbers):
        raise ModelLoadError(f"parameter '{PARAMETER}' names a GPU twice: '{named}'")
    if arguments.devices > 1 and len(numbers) != arguments.devices:
        raise ModelLoadError(
            f"parameter '{PARAMETER}' names {len(numbers)} GPUs, but tensor_parallel_size times "
            f"pipeline_parallel_size times data_parallel_size is {arguments.devices}"
        )
    return numbers
