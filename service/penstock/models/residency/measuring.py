"""`ModelMeter`: what loaded models really take: their processes on the host, and on each GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from penstock.models.residency.memory import ModelMemory
from penstock.models.serving.loaded_model import LoadedModel
from penstock.models.sizing.estimate import HOST
from penstock.models.sizing.measured import MeasuredSizes
from penstock.system.process_memory import proportional_bytes, with_descendants

GpuProcesses = Callable[[], Mapping[int, Mapping[int, int]]]
"""Bytes of each GPU by process, as the driver has them; may block."""


def no_gpus() -> Mapping[int, Mapping[int, int]]:
    """The bytes where there is no GPU."""
    return {}


class ModelMeter:
    """Measures models, has the memory budget count it, and keeps it in `sizes`.

    Each is measured once it is loaded, and again when it is idle after it was used.
    """

    def __init__(
        self, memory: ModelMemory, sizes: MeasuredSizes, gpu_processes: GpuProcesses = no_gpus
    ) -> None:
        self._memory = memory
        self._sizes = sizes
        self._gpu_processes = gpu_processes
        self._measured: dict[LoadedModel, int] = {}

    async def measure(self, model: LoadedModel) -> None:
        """Count what a model takes, if that can be told."""
        self._measured[model] = model.statistics.last_ended
        claim, pids = model.claim, process_ids(model)
        if claim is None or not pids:
            return
        found = await asyncio.to_thread(measured, pids, self._gpu_processes)
        if found and pids == process_ids(model):
            self._memory.correct(claim, found)
            self._sizes.keep(claim.stamp, found)

    async def measure_idle(self, models: Iterable[LoadedModel]) -> None:
        """Measure those of all loaded models that were used since, and are idle again."""
        models = [*models]
        self._measured = {one: at for one, at in self._measured.items() if one in models}
        for model in models:
            used = model.statistics.last_ended
            if self._measured.get(model) != used and not model.busy:
                await self.measure(model)
                self._memory.remember(model.config.name)
        await self.write()

    async def write(self) -> None:
        """Keep what has changed."""
        await asyncio.to_thread(self._sizes.write)


def process_ids(model: LoadedModel) -> list[int]:
    """The processes of a model's instances; empty where one is on a thread of the server.

    What such a model takes is the server's, and cannot be told from what others take there.
    """
    states = [instance.process for instance in model.instances]
    pids = [state.pid for state in states if state is not None and state.pid is not None]
    return pids if len(pids) == len(states) else []


def measured(pids: Iterable[int], gpus: GpuProcesses = no_gpus) -> dict[str, int]:
    """Bytes by device of processes and what they have started; blocks.

    Devices that know nothing of them are left out, as where processes have other numbers for the
    driver than for the server.
    """
    family = set[int]()
    for pid in pids:
        family |= with_descendants(pid)
    host = proportional_bytes(family)
    found = {} if host is None else {HOST: host}
    for gpu, sizes in gpus().items():
        if family & sizes.keys():
            found[f"gpu{gpu}"] = sum(size for pid, size in sizes.items() if pid in family)
    return found
