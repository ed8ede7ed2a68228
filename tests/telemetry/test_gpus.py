"""Metrics of GPUs."""

from __future__ import annotations

from typing import TypeVar

import pytest

from penstock.system.nvml import NvmlError
from penstock.telemetry.gpus import GpuUsage
from penstock.telemetry.metrics import MetricsPage

Value = TypeVar("Value")


class _Gpu:
    """A GPU that uses 5 joules between readings."""

    def __init__(self, *unknown: str) -> None:
        self._unknown = unknown
        self._energy = 100.0

    def uuid(self) -> str:
        return "GPU-1"

    def memory(self) -> tuple[int, int]:
        return self._told("memory", (3, 8))

    def utilization(self) -> float:
        return self._told("utilization", 0.5)

    def power_usage(self) -> float:
        return self._told("power", 70.5)

    def power_limit(self) -> float:
        return self._told("power", 350.0)

    def energy(self) -> float:
        self._energy += 5
        return self._told("energy", self._energy)

    def _told(self, name: str, value: Value) -> Value:
        if name in self._unknown:
            raise NvmlError("NVML error 3")
        return value


def _page(usage: GpuUsage | None) -> list[str]:
    text = MetricsPage(lambda: (), lambda: (), gpus=usage).text()
    return [line for line in text.splitlines() if line.startswith(("nv_gpu", "nv_energy"))]


@pytest.mark.contract("ME-21", "ME-22", "ME-23", "ME-24")
def test_the_page_shows_what_the_driver_tells() -> None:
    usage = GpuUsage([_Gpu()], 2.0)
    usage.read()
    usage.read()
    assert _page(usage) == [
        'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5',
        'nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 8',
        'nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 3',
        'nv_gpu_power_usage{gpu_uuid="GPU-1"} 70.5',
        'nv_gpu_power_limit{gpu_uuid="GPU-1"} 350',
        'nv_energy_consumption{gpu_uuid="GPU-1"} 10',
    ]


@pytest.mark.contract("ME-25")
def test_what_a_gpu_does_not_tell_is_left_out() -> None:
    usage = GpuUsage([_Gpu("memory", "power", "energy")], 2.0)
    usage.read()
    assert _page(usage) == ['nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5']


@pytest.mark.contract("CL-34")
def test_without_gpus_there_are_no_such_metrics() -> None:
    assert _page(GpuUsage([], 2.0)) == _page(None) == []
