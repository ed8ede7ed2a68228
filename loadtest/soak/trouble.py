"""Trouble: killed and stopped processes, loads and unloads, while calls go on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from loadtest.soak.ledger import CallError, Trouble
from loadtest.soak.models import SoakModels
from loadtest.soak.traffic import Traffic
from penstock.protocol import grpc_service_pb2 as pb

_NEEDED_BY = {
    "plain": ("chain", "asker"),
    "victim": ("chain", "asker"),
    "echo": ("chain",),
    "cached": ("caller",),
    "batched": ("steps",),
}
_KILLED = (
    "victim",
    "plain",
    "batched",
    "cached",
    "coro",
    "drip",
    "count",
    "spell",
    "asker",
    "caller",
    "sums",
    "shout",
    "changing",
)
_REST = 25.0
"""Seconds between two kills of a model: five in a minute would keep it down."""
_STOPPED = 3.0


@dataclass(slots=True)
class TroubleMaker:
    """Makes one trouble at a time, and waits until the model answers right again."""

    traffic: Traffic
    models: SoakModels
    alive: Callable[[int], bool]  # whether this is a process of the server, and runs
    faults: Sequence[Callable[[], Awaitable[None]]] = ()
    _killed: dict[str, float] = field(default_factory=dict)
    _change: int = 0

    async def make(self) -> None:
        """One trouble of a random kind."""
        kinds: list[Callable[[], Awaitable[None]]] = [
            self.kill,
            self.kill,
            self.kill,
            self.kill,
            self.stop,
            self.change,
            self.change,
            self.unload_and_load,
            self.fail_to_load,
            *self.faults,
        ]
        await self.traffic.chance.choice(kinds)()

    async def kill(self) -> None:
        """SIGKILL for a process of a model; over when the model answers right again."""
        now = time.monotonic()
        rested = [m for m in _KILLED if now - self._killed.get(m, -_REST) >= _REST]
        if not rested:
            return
        model = self.traffic.chance.choice(rested)
        living = [pid for pid in self.models.processes(model) if self.alive(pid)]
        if not living:
            return
        self._killed[model] = now
        trouble = self._trouble("kill -9", model)
        pid = self.traffic.chance.choice(living)
        os.kill(pid, signal.SIGKILL)
        self.models.forget(model, pid)
        await self._until_right(model, trouble)

    async def stop(self) -> None:
        """SIGSTOP for some seconds: calls are late, and none may fail."""
        living = [pid for pid in self.models.processes("frozen") if self.alive(pid)]
        if not living:
            return
        self.traffic.ledger.begins("SIGSTOP and SIGCONT")
        os.kill(living[-1], signal.SIGSTOP)
        try:
            await asyncio.sleep(_STOPPED)
        finally:
            os.kill(living[-1], signal.SIGCONT)
        begun = time.monotonic()
        if await self.traffic.checked("probe after trouble", "frozen", self.traffic.ask("frozen")):
            recoveries = self.traffic.ledger.recoveries["frozen, SIGCONT"]
            recoveries.append(time.monotonic() - begun)

    async def change(self) -> None:
        """Load `changing` anew: another factor, or another count of instances, or both."""
        self._change += 1
        await self._change_to(float(2 + self._change // 2 % 50), 1 + self._change % 2)

    async def restore(self) -> None:
        """Load `changing` as it was at first: the server is to hold what it held then."""
        await self._change_to(2.0, 1)

    async def _change_to(self, factor: float, instances: int) -> None:
        self.models.change(factor, instances)
        self.traffic.ledger.begins("reload with changes")
        self.traffic.factors.begin(factor)
        if await self.traffic.checked("load and unload", "changing", self._load("changing")):
            self.traffic.factors.end_others(factor)

    async def unload_and_load(self) -> None:
        """Unload `coming` and load it again; calls between fail."""
        trouble = self._trouble("unload", "coming")
        request = pb.RepositoryModelUnloadRequest(model_name="coming")
        unload = self.traffic.grpc.call("RepositoryModelUnload", request)
        await self.traffic.checked("load and unload", "server", unload)
        await asyncio.sleep(self.traffic.chance.random())
        await self.traffic.checked("load and unload", "server", self._load("coming"))
        await self._until_right("coming", trouble)

    async def fail_to_load(self) -> None:
        """A load with a configuration that is refused; the model serves on."""
        request = pb.RepositoryModelLoadRequest(model_name="changing")
        request.parameters["config"].string_param = json.dumps({"backend": "none_such"})
        self.traffic.ledger.begins("load that is refused")
        try:
            await self.traffic.grpc.call("RepositoryModelLoad", request)
        except CallError as error:
            self.traffic.ledger.expected("load and unload", "load that is refused", error.status)
        else:
            self.traffic.ledger.wrong("load and unload", "an unknown backend is accepted")

    def _trouble(self, cause: str, model: str) -> Trouble:
        models = (model, *_NEEDED_BY.get(model, ()))
        return self.traffic.ledger.trouble(cause, models)

    async def _load(self, model: str) -> None:
        request = pb.RepositoryModelLoadRequest(model_name=model)
        await self.traffic.grpc.call("RepositoryModelLoad", request)

    async def _until_right(self, model: str, trouble: Trouble) -> None:
        """Ask the model again and again until it answers."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if await self.traffic.checked("probe after trouble", model, self._ask(model)):
                self.traffic.ledger.recovered(model, trouble)
                return
            await asyncio.sleep(0.05)
        self.traffic.ledger.recovered(model, trouble, counts=False)
        self.traffic.ledger.lost("probe after trouble", f"{model} has not come back")

    async def _ask(self, model: str) -> None:
        """One request to a model, of the kind that it takes."""
        traffic = self.traffic
        asks: dict[str, Callable[[], Awaitable[None]]] = {
            "cached": traffic.ask_uncached,
            "changing": traffic.ask_changing,
            "count": traffic.ask_count,
            "drip": lambda: traffic.read_numbers(3),
            "spell": traffic.ask_spell,
            "shout": traffic.ask_shout,
            "sums": traffic.ask_new_sum,
        }
        await asks.get(model, lambda: traffic.ask(model))()
