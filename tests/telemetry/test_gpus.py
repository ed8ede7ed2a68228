"""Metrics of GPUs."""

from __future__ import annotations

import threading
from typing import TypeVar

import pytest

from penstock.inflight.statistics import Statistics
from penstock.models.serving.answers import ModelStatistics
from penstock.system.nvml import NotReportedError, NvmlError
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
            raise NotReportedError("Not Supported")
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


@pytest.mark.contract("ME-25")
def test_a_failing_reading_is_logged_once_until_it_works_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    gpu = _Gpu()
    usage = GpuUsage([gpu], 2.0)
    with monkeypatch.context() as broken:
        broken.setattr(gpu, "power_usage", _lost)
        usage.read()
        usage.read()
        assert "nv_gpu_power_usage" not in "".join(_page(usage))
        assert "nv_gpu_utilization" in "".join(_page(usage))
    usage.read()
    assert caplog.messages == [
        "cannot read the power usage of GPU GPU-1: GPU is lost",
        "the power usage of GPU GPU-1 can be read again",
    ]


def test_energy_counts_from_its_first_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = _Gpu()
    with monkeypatch.context() as broken:
        broken.setattr(gpu, "energy", _lost)
        usage = GpuUsage([gpu], 2.0)
    usage.read()
    usage.read()
    assert 'nv_energy_consumption{gpu_uuid="GPU-1"} 5' in _page(usage)


def test_a_driver_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, released = _Gpu(), threading.Event()

    def hang() -> float:
        released.wait(60)
        return 0.0

    usage = GpuUsage([gpu], 2.0, patience=0.05)
    monkeypatch.setattr(gpu, "power_limit", hang)
    usage.start()
    assert not usage.stop()
    released.set()


def _lost() -> float:
    raise NvmlError("GPU is lost")


@pytest.mark.contract("ME-02")
def test_counters_of_a_model_name_the_gpu_that_it_is_on() -> None:
    models = [
        ModelStatistics("here", "1", Statistics(), gpu=1),
        ModelStatistics("elsewhere", "1", Statistics(), gpu=7),
        ModelStatistics("nowhere", "1", Statistics()),
    ]
    usage = GpuUsage([_Gpu()], 2.0, {1: "GPU-1"})
    text = MetricsPage(lambda: models, lambda: (), gpus=usage).text()
    lines = [line for line in text.splitlines() if line.startswith("nv_inference_request_success")]
    assert lines == [
        'nv_inference_request_success{gpu_uuid="GPU-1",model="here",version="1"} 0',
        'nv_inference_request_success{model="elsewhere",version="1"} 0',
        'nv_inference_request_success{model="nowhere",version="1"} 0',
    ]
