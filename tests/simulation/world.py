"""A server, its clients and what befalls them, all decided by a seed.

Real are the facade, loading, schedulers, streams, both ends of the link and its shared memory; a
model process is a coroutine (`processes`), and the clock is virtual (`loop`). Clients call at
random times, read slowly, leave, set deadlines and stop; processes are killed, models loaded and
unloaded. After it each request must have been answered rightly or refused for a reason, the server
must be as empty as it was, and each model must answer again.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Set
from contextlib import asynccontextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from penstock.core.errors import InferenceError, RejectedError
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.request import InferenceRequest, InferenceResponse, RequestScope
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.hosting.parent.process import ProcessInstance
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.residency.residency import ModelResidency
from penstock.models.serving.loaded_model import LoadedModel
from penstock.models.sizing.budget import MemoryBudget
from penstock.models.sizing.weights import weight_files
from penstock.server.answers import ServerMetadata
from penstock.server.server import InferenceServer
from penstock.system.reaper import Reaper
from simulation import backend as played
from simulation.backend import Watched, answer
from simulation.loop import SimulatedLoop, StandsStillError, simulate
from simulation.models import MODELS, PlayedRepository
from simulation.processes import PlayedPulse, PlayedStarter

_BATCHING = {"batched", "local", "sequences", "oldest", "pipeline"}
_PARTS = ("batched", "local")
_OF_SEQUENCES = ("sequences", "oldest")
_STREAMS = ("stream", "serial_stream")
_ROOM = 72 << 20
"""Bytes of memory for models that calls load: two have room, or the one with two instances."""
_BACKENDS = {"played": played.PlayedBackend, "engine": played.PlayedEngine}
_CHANCE: ContextVar[random.Random] = ContextVar("chance")
_SMALL = 0.9
"""The share of worlds with one model, or a pipeline, and a few clients."""
_PATIENCE = 900.0
"""Virtual seconds after which whoever waits will wait for ever."""


class WrongError(AssertionError):
    """Something is not as it must be."""


@dataclass
class World:
    """A server in a simulated loop, and what clients of it have seen."""

    server: InferenceServer
    starter: PlayedStarter
    lifecycle: ModelLifecycle
    loop: SimulatedLoop
    names: list[str]
    budget: MemoryBudget | None = None
    """What loaded models may take, where calls load them; else `None`."""

    outcomes: Counter[str] = field(default_factory=Counter)
    admitted: Counter[str] = field(default_factory=Counter)
    killed: bool = False
    """Whether a process was killed or an operator cancelled, so that calls may fail for it."""

    reloaded: bool = False
    """Whether a model was unloaded, so that calls may be refused for it."""

    small: bool = False
    """Whether the world is one that is played in little time."""

    _seen: tuple[object, list[LoadedModel]] = (None, [])

    @property
    def chance(self) -> random.Random:
        """That of the act that asks."""
        return _CHANCE.get()

    @property
    def others(self) -> list[str]:
        """The models that have no sequences."""
        return [name for name in self.names if name not in _OF_SEQUENCES]

    # -- clients ------------------------------------------------------------------------------

    def request(self, model: str, number: int, **more: Any) -> InferenceRequest:
        """A request of this number, which is what its input holds."""
        count = 5000 if self.chance.random() < 0.1 else 1
        values = np.full((1, count) if model in _BATCHING else (count,), number, np.int32)
        return InferenceRequest(
            model, inputs={"X": Tensor.from_numpy(values)}, id=str(number), **more
        )

    async def client(self, number: int, model: str, at: float) -> None:
        """One call, with everything that a client may do, after `at` seconds."""
        chance = self.chance
        await asyncio.sleep(at)
        parameters: dict[str, Any] = {"work": chance.choice((0.0, 0.0, 0.0, 0.005, 0.05, 0.1))}
        answers = 1
        if model in _STREAMS:
            answers = chance.choice((0, 1, 3, 20))
            parameters |= {"answers": answers, "pause": chance.choice((0.0, 0.0, 0.01))}
        fails = chance.random() < 0.05 and model != "pipeline"
        if fails:
            parameters["fails"] = True
        deadline = None
        if chance.random() < 0.15:
            deadline = self.loop.time() + chance.choice((0.001, 0.02, 0.1))
        timeout = chance.choice((0, 0, 0, 10_000)) if model == "local" else 0
        request = self.request(
            model,
            number,
            parameters=parameters,
            timeout=timeout,
            scope=RequestScope(deadline=deadline),
        )
        kind, got = await self.read(request)
        late = 0.0 if deadline is None else self.loop.time() - deadline
        if kind == "whole" and late > 0.02 * (answers + 1):
            raise WrongError(f"{model}: request {number} was answered {late:.3f} s too late")
        if not (self.killed or model == "local"):
            self.hold_reason(request, kind, got, may_fail=fails or deadline is not None)
        if kind == "whole":
            expected = answer(answer(number)) if model == "pipeline" else answer(number)
            self.compare(model, number, got, [expected + at for at in range(answers)])

    def hold_reason(
        self, request: InferenceRequest, kind: str, got: list[Any], *, may_fail: bool
    ) -> None:
        """There must be a reason for what failed or was refused."""
        what = f"{request.model_name}: request {request.id}"
        may_fail = may_fail or request.model_name == "pipeline"
        if kind == "failed" and not (may_fail or self._gave_up_load(got[-1])):
            raise WrongError(f"{what} failed: {got[-1]}")
        if kind == "refused" and not self.reloaded:
            raise WrongError(f"{what} was refused: {got[-1]}")

    async def crowd(self, first: int) -> None:
        """Calls of one model at once, of which streams go on side by side."""
        model, count = self.chance.choice(self.others), self.chance.randint(2, 8)
        parameters = {"work": self.chance.choice((0.0, 0.02)), "answers": 20, "pause": 0.01}
        requests = [
            self.request(model, first + at, parameters=parameters, scope=RequestScope())
            for at in range(count)
        ]
        await asyncio.gather(*map(self.read, requests))

    async def queued_at_death(self, first: int) -> None:
        """A process dies at a slow request; those that wait behind it, it had not begun with."""
        quick = [self.request("alone", first + at, scope=RequestScope()) for at in range(10)]
        for request in quick:
            await self.read(request)
        slow = {"parameters": {"work": 0.1}}
        burst = [
            self.request("alone", first + at, scope=RequestScope(), **(slow if at == 10 else {}))
            for at in range(10, 15)
        ]
        reading = asyncio.gather(*map(self.read, burst))
        await asyncio.sleep(0.01)
        self.killed = True
        for child in self.starter.running:
            if child.host._model == "alone":
                child.kill_nowait()
        await reading

    async def read(self, request: InferenceRequest) -> tuple[str, list[Any]]:
        """Send a request, and read as some client does; how it ended, and what came."""
        chance = self.chance
        got: list[Any] = []
        try:
            stream = self.server.infer(request)
        except InferenceError as error:
            self.outcomes["refused"] += 1
            self.admitted[request.model_name] += isinstance(error, RejectedError)  # is counted
            return "refused", [error]
        self.admitted[request.model_name] += 1
        leaves = chance.choice((None, None, None, 0.0, 0.004, 0.05, 0.3))
        most = chance.choice((None, None, None, 2))
        stops = chance.random() < 0.05
        slow = chance.choice((None, 0.0, 0.02))
        reading = asyncio.ensure_future(_read(stream, got, most, slow))
        try:
            await asyncio.wait([reading], timeout=leaves)
            if not reading.done() and stops:
                stream.stop()
                await asyncio.wait([reading])
                kind = "stopped"
            elif not reading.done():
                reading.cancel()
                await asyncio.wait([reading])
                kind = "left"
            else:
                kind = reading.result()
        finally:
            stream.close()
        if stops and kind != "failed":
            kind = "stopped"
        self.outcomes[kind] += 1
        return kind, got

    def compare(self, model: str, number: int, got: list[Any], expected: list[int]) -> None:
        """Hold the values of answers against what they must be."""
        values = [_value(response) for response in got]
        if values != expected:
            raise WrongError(f"{model}: request {number} got {values}, not {expected}")

    async def sequence(self, number: int) -> None:
        """A sequence of calls, one after the other or all at once; some never end it."""
        await asyncio.sleep(self.chance.random() * 0.3)
        model, calls = await self._sequence_calls(number)
        for at, (got, reading) in enumerate(calls):
            kind = await reading
            self.outcomes[kind] += 1
            if kind == "whole" and not self.killed:
                self.compare(model, number, got, [answer(number) + at * 1_000_000])
            elif kind != "whole" and not (self.killed or self.reloaded):
                raise WrongError(f"{model}: sequence {number}, call {at}: {got[-1]}")

    async def _sequence_calls(
        self, number: int
    ) -> tuple[str, list[tuple[list[Any], asyncio.Future[str]]]]:
        """Begin the calls of a sequence; what each has read, and how it ends."""
        chance = self.chance
        model = chance.choice([name for name in self.names if name in _OF_SEQUENCES])
        length = chance.randint(1, 5)
        ends = chance.random() < 0.8
        one_by_one = chance.random() < 0.5
        calls: list[tuple[list[Any], asyncio.Future[str]]] = []
        for at in range(length):
            request = self.request(
                model,
                number,
                correlation_id=number,
                sequence_start=at == 0,
                sequence_end=ends and at == length - 1,
                parameters={"work": chance.choice((0.0, 0.01))},
                scope=RequestScope(),
            )
            try:
                stream = self.server.infer(request)
            except InferenceError:
                if not (self.killed or self.reloaded):
                    raise
                break
            self.admitted[model] += 1
            got: list[Any] = []
            calls.append((got, asyncio.ensure_future(_read(stream, got, None, 0.0))))
            if one_by_one:
                await asyncio.wait([calls[-1][1]])
            if chance.random() < 0.3:
                await asyncio.sleep(0.02)
        return model, calls

    # -- what befalls them --------------------------------------------------------------------

    async def busy(self) -> None:
        """Wait for a time, and then, perhaps, until requests are in flight."""
        await asyncio.sleep(self.chance.random() * 0.3)
        models = [*self.lifecycle.catalog.models()]
        least = self.chance.choice((0, 1, 3))
        for _ in range(20):
            if any(model.statistics.in_flight >= least for model in models):
                return
            await asyncio.sleep(0.005)

    def _gave_up_load(self, error: object) -> bool:
        """Whether a call failed as an unload gave up the load that it waited for."""
        return self.reloaded and "the load of model" in str(error)

    async def kill(self) -> None:
        """Kill a model process."""
        await self.busy()
        if running := self.starter.running:
            self.killed = True
            self.chance.choice(running).kill_nowait()

    async def reload(self) -> None:
        """Unload a model, or load it anew."""
        await self.busy()
        name = self.chance.choice(self.names)
        self.reloaded = True
        with suppress(InferenceError):
            if self.chance.random() < 0.5:
                await self.server.unload(name)
                await asyncio.sleep(self.chance.random() * 0.1)
            await self.server.load(name, {})

    async def cancel(self) -> None:
        """An operator cancels a request by its id."""
        await asyncio.sleep(self.chance.random() * 0.3)
        self.killed = True
        self.server.cancel(str(self.chance.randint(0, 20)))

    # -- what must hold -----------------------------------------------------------------------

    def watch(self) -> None:
        """What must hold after each turn of the loop."""
        if Watched.faults:
            raise WrongError(Watched.faults[0])
        if self.budget is not None and self.budget.used > _ROOM:
            raise WrongError(f"models have {self.budget.used} bytes of {_ROOM}")
        until = self.lifecycle.catalog.changes.next
        if until is not self._seen[0]:
            self._seen = until, [*self.lifecycle.catalog.models()]
        for model in self._seen[1]:
            counted = model.statistics
            if not 0 <= counted.pending <= counted.in_flight:
                raise WrongError(
                    f"{model.config.name}: {counted.pending} wait of {counted.in_flight} in flight"
                )

    async def settled(self) -> None:
        """Wait until nothing goes on any more, and hold the server against an empty one."""
        # Sequences that did not end are over then.
        await asyncio.sleep(5 if self.small else 30)
        await self.load_all()
        gc.collect()  # clients' errors hold what they have read
        await asyncio.sleep(1)
        for model in self.lifecycle.catalog.models():
            self._hold_counts(model)
            for instance in model.instances:
                if isinstance(instance, ProcessInstance):
                    _hold_idle(model.config.name, instance)
        if kept := self.lifecycle.running._entries:
            raise WrongError(f"requests are kept by their ids at rest: {[*kept]}")
        for child in self.starter.running:
            left = len(child.host._replies), child.host.memory.used
            if any(left):
                raise WrongError("a process has {} streams, {} blocks at rest".format(*left))

    async def load_all(self) -> None:
        """Load what was unloaded."""
        for name in self.names:
            with suppress(InferenceError):
                if not await self.server.model_ready(name, ""):
                    await self.server.load(name, {})

    def _hold_counts(self, model: LoadedModel) -> None:
        name, counted = model.config.name, model.statistics
        if counted.in_flight or counted.pending:
            raise WrongError(f"{name}: {counted.in_flight} in flight at rest")
        ended = counted.success.count + counted.failures.total()
        if not self.reloaded and "pipeline" not in self.names and ended != self.admitted[name]:
            raise WrongError(f"{name}: {self.admitted[name]} were admitted, {ended} ended")

    async def asked_again(self) -> None:
        """Each model answers, whatever was."""
        for number, name in enumerate(self.names, 10_000):
            ends = {"correlation_id": number, "sequence_start": True, "sequence_end": True}
            more = ends if name in _OF_SEQUENCES else {}
            for _ in range(1 if self.small else 3):
                request = self.request(name, number, scope=RequestScope(), **more)
                got: list[Any] = []
                kind = await _read(self.server.infer(request), got, None, 0.0)
                if kind != "whole":
                    raise WrongError(f"{name} does not answer any more: {got[-1]}")
                wanted = answer(answer(number)) if name == "pipeline" else answer(number)
                self.compare(name, number, got, [wanted])
        for name in self.names:
            if name in _STREAMS:
                await self.long_streams(name)
        if "plain" in self.names:
            await self.both_instances()

    async def long_streams(self, name: str) -> None:
        """Streams beside each other have room for all of their answers."""
        more = {"parameters": {"answers": 12}}
        requests = [self.request(name, at, scope=RequestScope(), **more) for at in range(3)]
        answers: list[list[Any]] = [[] for _ in requests]
        readers = map(_read, map(self.server.infer, requests), answers, [None] * 3, [None] * 3)
        if {*await asyncio.gather(*readers)} != {"whole"} or [*map(len, answers)] != [12] * 3:
            raise WrongError(f"streams of '{name}' end early: {[*map(len, answers)]}")

    async def both_instances(self) -> None:
        """The two instances of a model answer two requests in the time of one."""
        await _read(self.server.infer(self.request("plain", 0, scope=RequestScope())), [], None, 0)
        begun = self.loop.time()  # now that it is loaded
        work = {"parameters": {"work": 1.0}}
        requests = [self.request("plain", at, scope=RequestScope(), **work) for at in (1, 2)]
        readers = [_read(self.server.infer(request), [], None, 0.0) for request in requests]
        await asyncio.gather(*readers)
        if self.loop.time() - begun > 1.5:
            raise WrongError("an instance of 'plain' gets no requests any more")


_weight_files = cache(weight_files)  # which every load looks for, and no model has


def _some_models(chance: random.Random, most: int) -> list[str]:
    """A few of the models, with the parts of the pipeline where it is one of them."""
    chosen = chance.sample([*MODELS], chance.randint(1, most))
    return [*dict.fromkeys([*(_PARTS if "pipeline" in chosen else ()), *chosen])]


def _hold_idle(name: str, instance: ProcessInstance) -> None:
    if left := [*instance._in_flight.requests]:
        raise WrongError(f"{name}: {len(left)} requests are in flight at rest")
    if instance._in_flight.executing:
        raise WrongError(f"{name}: a batch is executing at rest")
    if blocks := instance.metrics().get("penstock_shared_memory_blocks"):
        raise WrongError(f"{name}: {blocks} blocks of shared memory are held at rest")


async def _read(
    stream: ResponseStream, got: list[Any], most: int | None, slow: float | None
) -> str:
    """Read answers into `got`; how it ended."""
    try:
        async for response in stream:
            if response.error is not None:
                raise response.error
            if response.outputs:
                got.append(response)
            if slow is not None:
                await asyncio.sleep(slow)
            if most is not None and len(got) >= most:
                return "left"
    except InferenceError as error:
        got.append(error)
        return "failed"
    finally:
        stream.close()
    return "whole"


def _value(response: InferenceResponse) -> int:
    values = response.outputs["Y"].numpy()
    if len(np.unique(values)) != 1:
        raise WrongError(f"an answer of several values: {np.unique(values)[:3]}")
    return int(values.flat[0])


@asynccontextmanager
async def _open(repository: Path, chance: random.Random) -> AsyncIterator[World]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    small = chance.random() < _SMALL
    on_demand = chance.random() < 0.3
    names = _some_models(chance, 1 if small else 5 if on_demand else 3)
    budget = MemoryBudget(_ROOM) if on_demand else None
    builder = VersionBuilder(lambda _: {}, Reaper.__new__(Reaper), budget=budget)
    starter = builder.factory.starter = PlayedStarter(chance)
    files = PlayedRepository(repository, names)
    lifecycle = ModelLifecycle(files, builder, finalize_seconds=30)
    server = InferenceServer(ServerMetadata("played", "1"), files, lifecycle, explicit_control=True)
    Watched.faults.clear()
    with (
        patch("penstock.hosting.worker.host.Pulse", PlayedPulse),
        patch("penstock.models.loading.backends.find_backend", _BACKENDS.__getitem__),
        patch("penstock.models.sizing.weights.weight_files", _weight_files),
    ):
        if on_demand:
            server.residency = ModelResidency(files, lifecycle, budget, timeout=300)
        failures = await server.start(() if on_demand else names)
        assert not failures, failures
        world = World(server, starter, lifecycle, loop, names, budget, reloaded=on_demand)
        world.small = small
        loop.on_turn = world.watch
        try:
            async with nullcontext() if server.residency is None else server.residency.running():
                yield world
        finally:
            loop.on_turn = None
            await server.stop(ExitDeadline(60))
            await asyncio.sleep(1)
            for child in starter.running:
                child.kill_nowait()
            await asyncio.sleep(1)
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            raise WrongError(f"tasks are left after the end: {left}")


Act = Coroutine[Any, Any, None]


def play(
    repository: Path, seen: Counter[str] | None = None, kept: Set[int] | None = None
) -> Callable[[random.Random], Act]:
    """A play of clients and faults over the models of a repository.

    `seen` counts how calls ended. Of all acts only those with `kept` numbers are played.
    """

    async def whole(chance: random.Random) -> None:
        async with _open(repository, chance) as world:
            acts = dict(enumerate(_acts(world, chance)))
            seeds = {number: chance.getrandbits(32) for number in acts}
            tasks = [
                asyncio.ensure_future(_acted(act(), seeds[number]))
                for number, act in acts.items()
                if kept is None or number in kept
            ]
            if tasks:
                done, waiting = await asyncio.wait(tasks, timeout=_PATIENCE)
                if waiting:
                    raise WrongError(f"{len(waiting)} clients wait for ever")
                for task in done:
                    task.result()
            _CHANCE.set(random.Random(1))
            await world.settled()
            again = asyncio.ensure_future(world.asked_again())
            await asyncio.wait([again], timeout=_PATIENCE)
            if not again.done():
                raise WrongError("a model does not answer any more")
            again.result()
            if seen is not None:
                seen.update(world.outcomes)

    return whole


def _acts(world: World, chance: random.Random) -> Iterator[Callable[[], Act]]:
    """What happens, each with its time."""
    if world.others:
        for number in range(chance.randint(2, 8 if world.small else 20)):
            at = chance.choice((0.0, 0.1, chance.random() * 0.3))
            yield partial(world.client, number, chance.choice(world.others), at)
        crowds = chance.choice((0, 0, 0, 1)) if world.small else chance.randint(0, 2)
        for crowd in range(1, crowds + 1):
            yield partial(world.crowd, 100 * crowd)
        if "alone" in world.names and chance.random() < 0.3:
            yield partial(world.queued_at_death, 500)
    if len(world.others) < len(world.names):
        for number in range(chance.randint(1, 6)):
            yield partial(world.sequence, 1000 + number)
    faults = {world.kill: 2, world.reload: 2, world.cancel: 1} if chance.random() < 0.5 else {}
    for fault, most in faults.items():
        yield from [fault] * chance.randint(0, most)


async def _acted(act: Act, seed: int) -> None:
    """An act with a chance of its own, so that it stays what it is when others are left out."""
    _CHANCE.set(random.Random(seed))
    await act


def shrunk(repository: Path, seed: int) -> tuple[set[int], BaseException]:
    """The fewest acts of a seed with which something still goes wrong, and what goes wrong."""
    kept, last = set(range(64)), wrong(repository, seed)
    assert last is not None
    for number in range(64):
        fewer = kept - {number}
        if (found := wrong(repository, seed, fewer)) is not None:
            kept, last = fewer, found
    return kept, last


def wrong(
    repository: Path, seed: int, kept: Set[int] | None = None, seen: Counter[str] | None = None
) -> BaseException | None:
    """What goes wrong with a seed; `None` if all is well."""
    try:
        simulate(seed, play(repository, seen, kept))
    except (Exception, StandsStillError) as error:
        return error
    return None
