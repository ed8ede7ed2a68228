"""Limits on the memory of GPUs, above which nothing more is loaded there (contract M-13)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping

from penstock.core.config import InstanceKind, ModelConfig
from penstock.core.errors import ModelLoadError, UnavailableError

UsedMemory = Callable[[int], float]
"""What part of a GPU's memory is in use, by the ordinal that CUDA gives the GPU."""


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


def check_gpu_memory(
    config: ModelConfig, limits: Mapping[int, float], used: UsedMemory | None = None
) -> None:
    """Refuse instances on a GPU that has passed its limit. Asks the driver."""
    used = used or used_memory
    groups = [group for group in config.instance_group if group.kind is InstanceKind.KIND_GPU]
    for device in sorted({device for group in groups for device in group.gpus}):
        if device in limits and used(device) > limits[device]:
            raise UnavailableError(
                f"can not create model '{config.name}': memory limit set for GPU {device} has "
                "exceeded, model loading is rejected."
            )


def used_memory(device: int, library: str = "libnvidia-ml.so.1") -> float:
    """What part of a GPU's memory is in use, as its driver says."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError as error:
        raise ModelLoadError(f"the memory of GPU {device} is not known: {error}") from error
    memory = _Memory()
    _ask(device, nvml.nvmlInit_v2())
    try:
        _ask(device, nvml.nvmlDeviceGetMemoryInfo(_handle(nvml, device), ctypes.byref(memory)))
    finally:
        nvml.nvmlShutdown()
    return float(memory.used / memory.total)


def _handle(nvml: ctypes.CDLL, device: int) -> ctypes.c_void_p:
    """The driver's handle of the GPU that CUDA calls `device`."""
    handle = ctypes.c_void_p()
    name = physical_name(device, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if name.isdecimal():
        _ask(device, nvml.nvmlDeviceGetHandleByIndex_v2(int(name), ctypes.byref(handle)))
    else:
        _ask(device, nvml.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle)))
    return handle


def physical_name(device: int, visible: str | None) -> str:
    """Number or UUID of a GPU, where `CUDA_VISIBLE_DEVICES` renumbers them."""
    if visible is None:
        return str(device)
    return [name.strip() for name in visible.split(",")][device]


def _ask(device: int, status: int) -> None:
    if status:
        raise ModelLoadError(f"the memory of GPU {device} is not known: NVML error {status}")
