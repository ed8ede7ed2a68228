"""`Nvml`: readings of GPUs from NVIDIA's driver, through its library NVML."""

from __future__ import annotations

import ctypes
import os

LIBRARY = "libnvidia-ml.so.1"
_UUID_BYTES = 96


class NvmlError(Exception):
    """There is no driver, or it does not report the value."""


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Nvml:
    """The library, opened until `close`. Calls may block while the driver is busy."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise NvmlError(str(error)) from error
        self._check(self._library.nvmlInit_v2())

    def close(self) -> None:
        self._library.nvmlShutdown()

    def gpu(self, device: int) -> Gpu:
        """The GPU with this CUDA ordinal."""
        handle = ctypes.c_void_p()
        name = physical_name(device, os.environ.get("CUDA_VISIBLE_DEVICES"))
        if name.isdecimal():
            self.call("nvmlDeviceGetHandleByIndex_v2", int(name), ctypes.byref(handle))
        else:
            self.call("nvmlDeviceGetHandleByUUID", name.encode(), ctypes.byref(handle))
        return Gpu(self, handle)

    def call(self, function: str, *arguments: object) -> None:
        """Call a function of the library that returns an error code."""
        try:
            found = getattr(self._library, function)
        except AttributeError as error:
            raise NvmlError(f"the driver has no {function}") from error
        self._check(found(*arguments))

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise NvmlError(f"NVML error {status}")


class Gpu:
    """One GPU. Each method raises `NvmlError` for a value that this GPU does not report."""

    def __init__(self, nvml: Nvml, handle: ctypes.c_void_p) -> None:
        self._nvml = nvml
        self._handle = handle

    def uuid(self) -> str:
        text = ctypes.create_string_buffer(_UUID_BYTES)
        self._nvml.call("nvmlDeviceGetUUID", self._handle, text, _UUID_BYTES)
        return text.value.decode()

    def memory(self) -> tuple[int, int]:
        """Memory in use and in total, in bytes."""
        memory = _Memory()
        self._nvml.call("nvmlDeviceGetMemoryInfo", self._handle, ctypes.byref(memory))
        return memory.used, memory.total

    def utilization(self) -> float:
        """The fraction of time in which it computed, 0.0 to 1.0, over the driver's last sample."""
        rates = _Utilization()
        self._nvml.call("nvmlDeviceGetUtilizationRates", self._handle, ctypes.byref(rates))
        return float(rates.gpu / 100)

    def power_usage(self) -> float:
        """Watts."""
        return self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint()) / 1000

    def power_limit(self) -> float:
        """Watts."""
        return self._number("nvmlDeviceGetPowerManagementLimit", ctypes.c_uint()) / 1000

    def energy(self) -> float:
        """Joules since the driver was loaded."""
        return self._number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong()) / 1000

    def compute_capability(self) -> float:
        """Major and minor version, as in 8.9."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        parts = ctypes.byref(major), ctypes.byref(minor)
        self._nvml.call("nvmlDeviceGetCudaComputeCapability", self._handle, *parts)
        return (major.value * 10 + minor.value) / 10

    def _number(self, function: str, value: ctypes.c_uint | ctypes.c_ulonglong) -> int:
        self._nvml.call(function, self._handle, ctypes.byref(value))
        return value.value


def physical_name(device: int, visible: str | None) -> str:
    """NVML index or UUID of a CUDA ordinal, under `CUDA_VISIBLE_DEVICES`."""
    if visible is None:
        return str(device)
    return [name.strip() for name in visible.split(",")][device]
