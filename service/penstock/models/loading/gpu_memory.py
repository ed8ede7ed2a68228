"""Limits on GPU memory in use, above which no instance is loaded on the GPU (M-13)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.core.config import InstanceKind, ModelConfig
from penstock.core.errors import ModelLoadError, UnavailableError
from penstock.system.nvml import LIBRARY, Nvml, NvmlError

UsedMemory = Callable[[int], float]
"""The fraction of a GPU's memory in use, by CUDA ordinal."""


def check_gpu_memory(
    config: ModelConfig, limits: Mapping[int, float], used: UsedMemory | None = None
) -> None:
    """Refuse instances on a GPU above its limit. Queries the driver (NVML)."""
    used = used or used_memory
    groups = [group for group in config.instance_group if group.kind is InstanceKind.KIND_GPU]
    for device in sorted({device for group in groups for device in group.gpus}):
        if device in limits and used(device) > limits[device]:
            raise UnavailableError(
                f"can not create model '{config.name}': memory limit set for GPU {device} has "
                "exceeded, model loading is rejected."
            )


def used_memory(device: int, library: str = LIBRARY) -> float:
    """The fraction of a GPU's memory in use, from NVML."""
    try:
        nvml = Nvml(library)
        try:
            used, total = nvml.gpu(device).memory()
        finally:
            nvml.close()
    except NvmlError as error:
        raise ModelLoadError(f"cannot read the memory use of GPU {device}: {error}") from error
    return used / total
