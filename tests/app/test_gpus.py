"""The GPUs that a server uses, told by a driver of our own."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from penstock.app.gpus import gpu_usage, usable_gpus
from penstock.settings import DeviceSettings, MetricsSettings

_DRIVER = """
#include <stdio.h>
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = (void *)(unsigned long)(index + 1);
    return index < 2 ? 0 : 2;
}
int nvmlDeviceGetUUID(void *handle, char *text, unsigned length) {
    return snprintf(text, length, "GPU-%lu", (unsigned long)handle) < 0;
}
int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *memory) {
    memory[0] = 8000; memory[1] = 6000; memory[2] = 2000;
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) { rates[0] = 40; return 0; }
int nvmlDeviceGetPowerUsage(void *handle, unsigned *value) { *value = 70500; return 0; }
int nvmlDeviceGetPowerManagementLimit(void *handle, unsigned *value) { *value = 350000; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *value) { return 3; }
int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    *major = (unsigned long)handle == 1 ? 8 : 6; *minor = (unsigned long)handle == 1 ? 9 : 1;
    return 0;
}
"""
pytestmark = pytest.mark.needs(
    "a C compiler", "" if shutil.which("cc") else "there is no C compiler"
)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A library that answers as NVIDIA's does, for two GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "nvml.c").write_text(_DRIVER)
    library = tmp_path / "libnvml.so"
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "nvml.c")]
    subprocess.run(command, check=True)
    return str(library)


@pytest.mark.contract("CL-43")
@pytest.mark.parametrize(("least", "used"), [(6.0, [0, 1]), (7.5, [0]), (8.9, [0]), (9.0, [])])
def test_gpus_below_the_compute_capability_are_not_used(
    driver: str, least: float, used: list[int]
) -> None:
    settings = DeviceSettings(min_supported_compute_capability=least)
    assert usable_gpus(settings, [0, 1], driver) == used


def test_gpus_are_used_where_the_driver_cannot_be_asked() -> None:
    assert usable_gpus(DeviceSettings(), [0], "libno-such-driver.so") == [0]


@pytest.mark.contract("EV-01", "CL-53")
def test_a_server_for_processors_uses_none(driver: str) -> None:
    assert usable_gpus(DeviceSettings(cpu_only=True), [0, 1], driver) == []


@pytest.mark.contract("ME-25", "CL-34")
def test_usage_is_read_of_each_gpu_that_can_be(
    driver: str, caplog: pytest.LogCaptureFixture
) -> None:
    usage = gpu_usage(MetricsSettings(), [0, 1, 7], driver)
    assert usage is not None
    end = time.monotonic() + 60
    while not usage.readings:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert [reading.uuid for reading in usage.readings] == ["GPU-1", "GPU-2"]
    assert usage.readings[0].values == {
        "nv_gpu_utilization": 0.4,
        "nv_gpu_memory_total_bytes": 8000,
        "nv_gpu_memory_used_bytes": 2000,
        "nv_gpu_power_usage": 70.5,
        "nv_gpu_power_limit": 350.0,
    }
    assert "there are no metrics of GPU 7: NVML error 2" in caplog.messages


@pytest.mark.contract("CL-34")
@pytest.mark.parametrize("switches", [{"gpu": False}, {"enabled": False}])
def test_metrics_of_gpus_can_be_switched_off(driver: str, switches: dict[str, bool]) -> None:
    assert gpu_usage(MetricsSettings(**switches), [0], driver) is None  # type: ignore[arg-type]


def test_a_driver_without_its_library_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert gpu_usage(MetricsSettings(), [0], "libno-such-driver.so") is None
    assert "there are no metrics of GPUs" in caplog.text
