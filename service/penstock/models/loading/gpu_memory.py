"""Limits on GPU memory in use, above which no instance is loaded on the GPU (M-13)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.core.config import InstanceKind, ModelConfig
from penstock.core.errors import UnavailableError

UsedMemory = Callable[[int], float]
"""The fraction of a GPU's memory in use, by CUDA ordinal."""


def check_gpu_memory(config: ModelConfig, limits: Mapping[int, float], used: UsedMemory) -> None:
    """Refuse instances on a GPU above its limit. `used` may block, and raise `ModelLoadError`."""
    groups = [group for group in config.instance_group if group.kind is InstanceKind.KIND_GPU]
    for device in sorted({device for group in groups for device in group.gpus}):
        if device in limits and used(device) > limits[device]:
            raise UnavailableError(
                f"can not create model '{config.name}': memory limit set for GPU {device} has "
                "exceeded, model loading is rejected."
            )
