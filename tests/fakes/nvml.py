"""A driver of NVIDIA's as `pynvml` presents it, with values that tests set."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml

VALUES: dict[str, Any] = {
    "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
    "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(
        total=8000, used=2000 * handle, free=8000 - 2000 * handle
    ),
    "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
        SimpleNamespace(pid=pid, usedGpuMemory=size)
        for pid, size in ((10, 100 * handle), (10 + handle, 7), (20, None))
    ],
    "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=40, memory=10),
    "nvmlDeviceGetPowerUsage": lambda handle: 70_500,
    "nvmlDeviceGetPowerManagementLimit": lambda handle: 350_000,
    "nvmlDeviceGetTotalEnergyConsumption": lambda handle: 3_000,
    "nvmlDeviceGetCudaComputeCapability": lambda handle: (8, 9) if handle == 1 else (6, 1),
}
"""What each function tells of a GPU: milliwatts, millijoules, percent and bytes."""


class FakeNvml:
    """Two GPUs, whose handles are 1 and 2. `failing` maps functions to the error that they raise.

    `opened` counts the times that it is open.
    """

    NVMLError = pynvml.NVMLError
    NVML_ERROR_NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
    NVML_ERROR_FUNCTION_NOT_FOUND = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND

    def __init__(self, **failing: int) -> None:
        self.failing = failing
        self.opened = 0
        self.most_opened = 0

    def nvmlInit(self) -> None:  # noqa: N802 - the package's name
        self._check("nvmlInit")
        self.opened += 1
        self.most_opened = max(self.most_opened, self.opened)

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.opened -= 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index > 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return index + 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        if uuid != "GPU-abc":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return 1

    def __getattr__(self, name: str) -> Any:
        read = VALUES[name]

        def reading(handle: int) -> Any:
            assert self.opened, f"{name} of a driver that is closed"
            self._check(name)
            return read(handle)

        return reading

    def _check(self, name: str) -> None:
        if name in self.failing:
            raise pynvml.NVMLError(self.failing[name])
