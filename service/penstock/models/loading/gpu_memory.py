"""Limits on GPU memory in use, above which no instance is loaded on the GPU (M-13)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping

from penstock.core.config import InstanceKind, ModelConfig
from penstock.core.errors import ModelLoadError, UnavailableError

UsedMemory = Callable[[int], float]
"""The fraction of a GPU's memory in use, by CUDA ordinal."""


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


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


def used_memory(device: int, library: str = "libnvidia-ml.so.1") -> float:
    """The fraction of a GPU's memory in use, from NVML."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError as error:
        raise ModelLoadError(f"cannot read the memory use of GPU {device}: {error}") from error
    memory = _Memory()
    _check(device, nvml.nvmlInit_v2())
    try:
        _check(device, nvml.nvmlDeviceGetMemoryInfo(_handle(nvml, device), ctypes.byref(memory)))
    finally:
        nvml.nvmlShutdown()
    return float(memory.used / memory.total)


def _handle(nvml: ctypes.CDLL, device: int) -> ctypes.c_void_p:
    """The NVML handle of a CUDA ordinal."""
    handle = ctypes.c_void_p()
    name = physical_name(device, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if name.isdecimal():
        _check(device, nvml.nvmlDeviceGetHandleByIndex_v2(int(name), ctypes.byref(handle)))
    else:
        _check(device, nvml.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle)))
    return handle


def physical_name(device: int, visible: str | None) -> str:
    """NVML index or UUID of a CUDA ordinal, under `CUDA_VISIBLE_DEVICES`."""
    if visible is None:
        return str(device)
    return [name.strip() for name in visible.split(",")][device]


def _check(device: int, status: int) -> None:
    if status:
        raise ModelLoadError(f"cannot read the memory use of GPU {device}: NVML error {status}")
