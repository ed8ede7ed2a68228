"""Metrics of the GPU, against what nvidia-smi tells of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpu.machine import on_gpu, smi
from gpu.serving import GpuServer
from harness.serving import wait_until

Record = Callable[[str, object], None]

pytestmark = on_gpu()
_RESERVED_MIB = 2048
"""What the driver keeps for itself, which one reading counts as used and another does not."""


def test_memory_is_what_nvidia_smi_tells(server: GpuServer, record_property: Record) -> None:
    server.load("script")
    server.answer("script", server.expected()[0])
    uuid, total, used = smi("uuid", "memory.total", "memory.used")

    def mib(name: str) -> float:
        return server.metric(name, gpu_uuid=uuid) / (1 << 20)

    wait_until(lambda: abs(mib("nv_gpu_memory_used_bytes") - int(used)) <= _RESERVED_MIB)
    record_property("used", f"{mib('nv_gpu_memory_used_bytes'):.0f} MiB, nvidia-smi {used}")
    record_property("total", f"{mib('nv_gpu_memory_total_bytes'):.0f} MiB, nvidia-smi {total}")
    assert mib("nv_gpu_memory_total_bytes") == pytest.approx(int(total), rel=0.01)


def test_power_is_what_nvidia_smi_tells(server: GpuServer, record_property: Record) -> None:
    uuid, limit, drawn = smi("uuid", "power.limit", "power.draw")
    if "N/A" in limit:
        pytest.skip(f"nvidia-smi tells no limit of power here: {limit}")
    assert server.metric("nv_gpu_power_limit", gpu_uuid=uuid) == pytest.approx(float(limit), abs=1)
    found = server.metric("nv_gpu_power_usage", gpu_uuid=uuid)
    record_property("drawn", f"{found:.0f} W, nvidia-smi {drawn}")
    assert 0 < found <= float(limit) * 1.5


def test_use_is_a_fraction_and_energy_grows(server: GpuServer, record_property: Record) -> None:
    [uuid] = smi("uuid")
    assert 0 <= server.metric("nv_gpu_utilization", gpu_uuid=uuid) <= 1

    def joules() -> float:
        return server.metric("nv_energy_consumption", gpu_uuid=uuid)

    before = joules()
    wait_until(lambda: joules() > before)
    record_property("since the start", f"{joules():.0f} J")
    assert joules() > before


def test_metrics_of_a_model_name_its_gpu(server: GpuServer) -> None:
    server.load("script")
    server.answer("script", server.expected()[0])
    [uuid] = smi("uuid")
    assert server.metric("nv_inference_count", gpu_uuid=uuid, model="script") >= 5
