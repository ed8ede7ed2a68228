"""`Nvml`: readings of GPUs from NVIDIA's driver, through its package `nvidia-ml-py`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


class NvmlError(Exception):
    """There is no driver, or it does not report the value."""


class NotReportedError(NvmlError):
    """This GPU never reports the value: its kind, or its driver, does not know it."""


class Nvml:
    """The driver, opened until `close`. Calls may block while it is busy.

    `api` is the module `pynvml`, or one like it.
    """

    def __init__(self, api: Any = None) -> None:
        self._api = api if api is not None else _pynvml()
        self.call(self._api.nvmlInit)

    def close(self) -> None:
        self.call(self._api.nvmlShutdown)

    def gpu(self, device: int) -> Gpu:
        """The GPU with this CUDA ordinal."""
        name = physical_name(device, os.environ.get("CUDA_VISIBLE_DEVICES"))
        if name.isdecimal():
            handle = self.call(self._api.nvmlDeviceGetHandleByIndex, int(name))
        else:
            handle = self.call(self._api.nvmlDeviceGetHandleByUUID, name)
        return Gpu(self, self._api, handle)

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function of the driver; raises `NvmlError` where it fails."""
        try:
            return function(*arguments)
        except self._api.NVMLError as error:
            raise self._error(error) from error

    def _error(self, error: Any) -> NvmlError:
        unknown = (
            self._api.NVML_ERROR_NOT_SUPPORTED,
            self._api.NVML_ERROR_FUNCTION_NOT_FOUND,
        )
        kind = NotReportedError if error.value in unknown else NvmlError
        return kind(str(error))


class Gpu:
    """One GPU. Each method raises `NvmlError` for a value that cannot be read."""

    def __init__(self, nvml: Nvml, api: Any, handle: Any) -> None:
        self._nvml = nvml
        self._api = api
        self._handle = handle

    def uuid(self) -> str:
        return str(self._ask(self._api.nvmlDeviceGetUUID))

    def memory(self) -> tuple[int, int]:
        """Memory in use and in total, in bytes."""
        memory = self._ask(self._api.nvmlDeviceGetMemoryInfo)
        return int(memory.used), int(memory.total)

    def processes(self) -> dict[int, int]:
        """Bytes by the id of the process; those that the driver does not tell are left out."""
        found = self._ask(self._api.nvmlDeviceGetComputeRunningProcesses)
        return {one.pid: int(one.usedGpuMemory) for one in found if one.usedGpuMemory is not None}

    def utilization(self) -> float:
        """The fraction of time in which it computed, 0.0 to 1.0, over the driver's last sample."""
        return float(self._ask(self._api.nvmlDeviceGetUtilizationRates).gpu / 100)

    def power_usage(self) -> float:
        """Watts."""
        return float(self._ask(self._api.nvmlDeviceGetPowerUsage) / 1000)

    def power_limit(self) -> float:
        """Watts."""
        return float(self._ask(self._api.nvmlDeviceGetPowerManagementLimit) / 1000)

    def energy(self) -> float:
        """Joules since the driver was loaded."""
        return float(self._ask(self._api.nvmlDeviceGetTotalEnergyConsumption) / 1000)

    def compute_capability(self) -> float:
        """Major and minor version, as in 8.9."""
        major, minor = self._ask(self._api.nvmlDeviceGetCudaComputeCapability)
        return float((major * 10 + minor) / 10)

    def _ask(self, function: Callable[[Any], Any]) -> Any:
        return self._nvml.call(function, self._handle)


def _pynvml() -> Any:
    """The package's module, imported where a GPU is there: it takes tens of milliseconds."""
    try:
        import pynvml
    except ImportError as error:
        raise NvmlError("the package nvidia-ml-py is not installed") from error
    return pynvml


def physical_name(device: int, visible: str | None) -> str:
    """NVML index or UUID of a CUDA ordinal, under `CUDA_VISIBLE_DEVICES`."""
    if visible is None:
        return str(device)
    return [name.strip() for name in visible.split(",")][device]
