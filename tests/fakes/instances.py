"""Scripted instances, and models on them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from fakes.values import answer, model_config
from penstock.core.call_chain import CallingInstance
from penstock.core.config import ModelConfig
from penstock.core.errors import UnsupportedError
from penstock.hosting.parent.process import ProcessState
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics
from penstock.models.serving.loaded_model import LoadedModel, ModelParts
from penstock.scheduling import Instance
from penstock.scheduling.direct import DirectScheduler


class FakeInstance:
    """Takes `seconds` for a batch, and is `held` until `release`; answers with the request's id.

    `batches` are the requests that it got by id, and `began` when it got them. `asked` counts how
    often `available` was read.
    """

    def __init__(
        self,
        name: str = "m_0",
        *,
        serial: bool = True,
        passive: bool = False,
        signature: Hashable = (),
        held: bool = False,
        seconds: float = 0.0,
    ) -> None:
        self.name = name
        self.serial = serial
        self.passive = passive
        self.signature: Hashable = signature
        self.on_available: Callable[[], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self.caller: CallingInstance | None = None
        self.process: ProcessState | None = None
        self.lost = False
        self.asked = 0
        self.why_unavailable = "it is away"
        self.health: bool | Exception = True
        self.numbers: Mapping[str, float] = {}
        self.states: Mapping[str, list[Any]] = {}
        self.stop_error: Exception | None = None
        self.stopped = 0
        self.batches: list[list[str]] = []
        self.began: list[float] = []
        self.commands: list[tuple[str, dict[str, Any]]] = []
        self.running = 0
        self.most_running = 0
        self._available = True
        self.hung = False
        self._seconds = seconds
        self._tasks: set[asyncio.Task[None]] = set()
        self._gate = asyncio.Event()
        if not held:
            self._gate.set()

    @property
    def alive(self) -> bool:
        return self._available

    @property
    def memory(self) -> object | None:
        return self if self._available else None

    @property
    def available(self) -> bool:
        self.asked += 1
        return self._available and not self.hung

    def go_away(self) -> None:
        self._available = False

    def give_up(self) -> None:
        """Be down for good, and call `on_lost`."""
        self._available = False
        self.lost = True
        assert self.on_lost is not None
        self.on_lost()

    def release(self) -> None:
        """Answer what is held, and hold nothing from now on."""
        self._gate.set()

    def come_back(self) -> None:
        """Be available again, and call `on_available`."""
        self._available = True
        assert self.on_available is not None
        self.on_available()

    def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        self.batches.append([inference.request.id for inference in batch])
        self.began.append(asyncio.get_running_loop().time())
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        for inference in batch:
            inference.started(time.monotonic_ns())
        task = asyncio.ensure_future(self._answer(batch, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        await self._gate.wait()
        await asyncio.sleep(self._seconds)
        for inference in batch:
            answer(inference)
        self.running -= 1
        done()

    async def control(self, action: str, arguments: Mapping[str, Any]) -> Any:
        if action == "refuse":
            raise UnsupportedError("no")
        self.commands.append((action, dict(arguments)))
        return {"done": action}

    def shrink(self) -> None:
        self.commands.append(("shrink", {}))

    async def start(self) -> None:
        pass

    async def healthy(self) -> bool:
        if isinstance(self.health, Exception):
            raise self.health
        return self.health

    def metrics(self) -> Mapping[str, float]:
        return self.numbers

    def histograms(self) -> Mapping[str, list[Any]]:
        return self.states

    async def answered(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        if self.stop_error is not None:
            raise self.stop_error
        await asyncio.sleep(0)
        self.stopped += 1


def make_model(*instances: FakeInstance, config: ModelConfig | None = None) -> LoadedModel:
    """Version 1 of a model on these instances, without batching."""
    return LoadedModel(
        ModelParts(config or model_config(), 1, DirectScheduler(instances), Statistics()),
        instances,
    )


async def execute(instance: Instance, batch: Sequence[Inference]) -> None:
    """Have a batch executed, and wait until the next may come."""
    done = asyncio.Event()
    instance.execute(batch, done.set)
    await done.wait()
