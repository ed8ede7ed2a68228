"""GPU usage, read from the driver at an interval by a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from penstock.system.nvml import NvmlError

Value = TypeVar("Value")


class Gpu(Protocol):
    """Readings of one GPU; each raises `NvmlError` for a value that is not reported."""

    def uuid(self) -> str: ...
    def memory(self) -> tuple[int, int]: ...
    def utilization(self) -> float: ...
    def power_usage(self) -> float: ...
    def power_limit(self) -> float: ...
    def energy(self) -> float: ...


@dataclass(frozen=True, slots=True)
class GpuReading:
    """Values of one GPU by the name of their metric, without those that it does not report."""

    uuid: str
    values: Mapping[str, float]


class GpuUsage:
    """Readings of GPUs, at most about `interval` seconds old.

    The driver may take long to answer, so only the thread that `start` makes calls it.
    """

    def __init__(self, gpus: Iterable[Gpu], interval: float) -> None:
        self._interval = interval
        self._gpus = [_Gpu(gpu, gpu.uuid(), _known(gpu.energy) or 0.0) for gpu in gpus]
        self.readings: Sequence[GpuReading] = ()

    def start(self) -> None:
        """Read now, and at the interval until the process ends."""
        if self._gpus:
            threading.Thread(target=self._run, name="gpu-metrics", daemon=True).start()

    def read(self) -> None:
        """Read from the driver; may block."""
        self.readings = tuple(gpu.reading() for gpu in self._gpus)

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            self.read()
            pause.wait(max(self._interval, _SHORTEST))


_SHORTEST = 0.05
"""Seconds between readings at least: the driver's own samples are not newer."""


@dataclass(frozen=True, slots=True)
class _Gpu:
    """`start` is the energy that it had used before, in joules."""

    gpu: Gpu
    uuid: str
    start: float

    def reading(self) -> GpuReading:
        memory, energy = _known(self.gpu.memory), _known(self.gpu.energy)
        values = {
            "nv_gpu_utilization": _known(self.gpu.utilization),
            "nv_gpu_memory_total_bytes": memory and memory[1],
            "nv_gpu_memory_used_bytes": memory and memory[0],
            "nv_gpu_power_usage": _known(self.gpu.power_usage),
            "nv_gpu_power_limit": _known(self.gpu.power_limit),
            "nv_energy_consumption": None if energy is None else max(energy - self.start, 0.0),
        }
        return GpuReading(self.uuid, {n: v for n, v in values.items() if v is not None})


def _known(read: Callable[[], Value]) -> Value | None:
    try:
        return read()
    except NvmlError:
        return None
