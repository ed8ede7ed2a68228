"""The GPUs that a server uses, told by a driver of our own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pynvml
import pytest

from fakes.nvml import FakeNvml
from penstock.app.gpus import ServerGpus, open_gpus
from penstock.core.errors import ModelLoadError
from penstock.settings import DeviceSettings, MetricsSettings


@pytest.fixture(autouse=True)
def every_gpu_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@contextmanager
def opened(
    devices: DeviceSettings | None = None,
    visible: Sequence[int] = (0, 1),
    driver: FakeNvml | None = None,
    **metrics: Any,
) -> Iterator[ServerGpus]:
    settings = devices or DeviceSettings(min_supported_compute_capability=6.0)
    with open_gpus(settings, MetricsSettings(**metrics), visible, driver or FakeNvml()) as gpus:
        yield gpus


@pytest.mark.contract("CL-43")
@pytest.mark.parametrize(("least", "used"), [(6.0, [0, 1]), (7.5, [0]), (8.9, [0]), (9.0, [])])
def test_gpus_below_the_compute_capability_are_not_used(least: float, used: list[int]) -> None:
    with opened(DeviceSettings(min_supported_compute_capability=least)) as gpus:
        assert gpus.usable == used


def test_gpus_are_used_where_the_driver_cannot_be_asked(caplog: pytest.LogCaptureFixture) -> None:
    driver = FakeNvml(nvmlInit=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    with opened(driver=driver) as gpus:
        assert (gpus.usable, gpus.usage) == ([0, 1], None)
    assert (
        "there are no metrics of GPUs, and all visible ones are used: NVML Shared Library"
        in caplog.text
    )


def test_gpus_are_used_where_their_capability_is_not_known() -> None:
    with opened(driver=FakeNvml(nvmlDeviceGetCudaComputeCapability=999)) as gpus:
        assert list(gpus.usable) == [0, 1]


@pytest.mark.contract("EV-01", "CL-53")
def test_a_server_for_processors_uses_none() -> None:
    driver = FakeNvml()
    with opened(DeviceSettings(cpu_only=True), driver=driver) as gpus:
        assert (gpus.usable, gpus.usage) == ((), None)
    assert not driver.most_opened


@pytest.mark.contract("ME-25", "CL-34")
def test_usage_is_read_of_each_gpu_that_can_be(caplog: pytest.LogCaptureFixture) -> None:
    """One failing device is logged and left out, and the others are read."""
    driver = FakeNvml(
        nvmlDeviceGetCudaComputeCapability=999,
        nvmlDeviceGetTotalEnergyConsumption=pynvml.NVML_ERROR_NOT_SUPPORTED,
    )
    with opened(visible=[0, 1, 7], driver=driver) as gpus:
        usage = gpus.usage
        assert usage is not None
        end = time.monotonic() + 60
        while not usage.readings:
            assert time.monotonic() < end
            time.sleep(0.01)
        readings = usage.readings
    assert [reading.uuid for reading in readings] == ["GPU-1", "GPU-2"]
    assert readings[0].values == {
        "nv_gpu_utilization": 0.4,
        "nv_gpu_memory_total_bytes": 8000,
        "nv_gpu_memory_used_bytes": 2000,
        "nv_gpu_power_usage": 70.5,
        "nv_gpu_power_limit": 350.0,
    }
    assert "there are no metrics of GPU 7: Invalid Argument" in caplog.messages


def test_the_driver_is_opened_once_and_closed_at_the_end() -> None:
    driver = FakeNvml()
    with opened(driver=driver) as gpus:
        assert gpus.used_memory(1) == 0.5
        assert driver.opened == 1
    assert (driver.opened, driver.most_opened) == (0, 1)


@pytest.mark.contract("CL-34")
@pytest.mark.parametrize("switches", [{"gpu": False}, {"enabled": False}])
def test_metrics_of_gpus_can_be_switched_off(switches: dict[str, Any]) -> None:
    with opened(**switches) as gpus:
        assert (gpus.usable, gpus.usage) == ([0, 1], None)


@pytest.mark.contract("ME-25")
@pytest.mark.parametrize(("gpu", "lines"), [(True, 1), (False, 0)])
def test_a_machine_without_gpus_is_told_in_one_line(
    gpu: bool, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with opened(visible=[], gpu=gpu) as gpus:
        assert gpus.usage is None
    assert caplog.messages == ["there are no metrics of GPUs: none is visible"] * lines


@pytest.mark.contract("M-13", "CL-46")
def test_memory_in_use_is_that_of_the_driver() -> None:
    with opened() as gpus:
        assert [gpus.used_memory(device) for device in (0, 1)] == [0.25, 0.5]
        with pytest.raises(ModelLoadError, match="memory use of GPU 7: Invalid Argument"):
            gpus.used_memory(7)


@pytest.mark.contract("M-13", "CL-46")
def test_memory_in_use_is_not_known_without_a_driver() -> None:
    with opened(visible=[]) as gpus, pytest.raises(ModelLoadError, match="the driver is not open"):
        gpus.used_memory(0)
