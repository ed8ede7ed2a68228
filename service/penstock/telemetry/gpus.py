"""GPU usage, read from the driver at an interval by a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from penstock.system.nvml import NotReportedError, NvmlError

logger = logging.getLogger(__name__)

Value = TypeVar("Value")


class Gpu(Protocol):
    """Readings of one GPU; each raises `NvmlError` for a value that cannot be read."""

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

    The driver may take long to answer, so only the thread that `start` makes calls it. `uuids` are
    those of the GPUs by their CUDA ordinals. A reading may take `patience` seconds once the server
    stops.
    """

    def __init__(
        self,
        gpus: Iterable[Gpu],
        interval: float,
        uuids: Mapping[int, str] | None = None,
        *,
        patience: float = 1.0,
    ) -> None:
        self._patience = patience
        self.interval = interval
        self.uuids = uuids or {}
        self._gpus = [_ReadGpu(gpu) for gpu in gpus]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-metrics", daemon=True)
        self.readings: Sequence[GpuReading] = ()

    def start(self) -> None:
        """Read now, and at the interval until `stop`."""
        if self._gpus:
            self._thread.start()

    def stop(self) -> bool:
        """Read no more; whether the driver is free. One that hangs is not waited for."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(self._patience)
        return not self._thread.is_alive()

    def read(self) -> None:
        """Read from the driver; may block."""
        self.readings = tuple(gpu.reading() for gpu in self._gpus)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.read()
            self._stopped.wait(max(self.interval, _SHORTEST))


_SHORTEST = 0.05
"""Seconds between readings at least: the driver's own samples are not newer."""


class _ReadGpu:
    """One GPU with the joules that it had used before, and the readings that fail now."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._failing: set[str] = set()
        self.uuid = gpu.uuid()
        self._start = self._known("energy", gpu.energy)

    def reading(self) -> GpuReading:
        gpu = self._gpu
        memory = self._known("memory", gpu.memory)
        values = {
            "nv_gpu_utilization": self._known("utilization", gpu.utilization),
            "nv_gpu_memory_total_bytes": memory and memory[1],
            "nv_gpu_memory_used_bytes": memory and memory[0],
            "nv_gpu_power_usage": self._known("power usage", gpu.power_usage),
            "nv_gpu_power_limit": self._known("power limit", gpu.power_limit),
            "nv_energy_consumption": self._energy(),
        }
        return GpuReading(self.uuid, {n: v for n, v in values.items() if v is not None})

    def _energy(self) -> float | None:
        """Joules since the start, or since the first reading that succeeded."""
        energy = self._known("energy", self._gpu.energy)
        if energy is None:
            return None
        if self._start is None:
            self._start = energy
        return max(energy - self._start, 0.0)

    def _known(self, what: str, read: Callable[[], Value]) -> Value | None:
        """The value, or `None`; a failure is logged when it begins and when it ends."""
        try:
            value = read()
        except NotReportedError:
            return None
        except NvmlError as error:
            if what not in self._failing:
                logger.warning("cannot read the %s of GPU %s: %s", what, self.uuid, error)
                self._failing.add(what)
            return None
        if what in self._failing:
            logger.info("the %s of GPU %s can be read again", what, self.uuid)
            self._failing.discard(what)
        return value
