"""Stand-ins at the seams: backends, instances, schedulers' instances and the loader."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, ParamSpec

import numpy as np

from penstock.core.backend import Backend, InstanceContext
from penstock.core.callers import Caller
from penstock.core.config import ModelConfig, ModelInput, ModelOutput
from penstock.core.inference import Inference
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.statistics import Statistics
from penstock.core.stream import ResponseStream
from penstock.core.tensor import DataType, Tensor
from penstock.hosting.reaper import Reaper
from penstock.models.loader import ModelLoader
from penstock.models.model import Model
from penstock.models.origin import origin_of
from penstock.models.repository import ModelFiles
from penstock.scheduling import Instance
from penstock.scheduling.direct import DirectScheduler

Arguments = ParamSpec("Arguments")

InstallBackend = Callable[[str, object], None]
"""What the fixture `install_backend` is."""

# -- values --------------------------------------------------------------------------------------


def make_request(id: str = "", rows: int = 1, width: int = 1, **fields: Any) -> InferenceRequest:
    """A request for the model of `model_config`; its input is `rows` x `width` zeros."""
    tensor = Tensor.from_numpy(np.zeros((rows, width), np.int32))
    return replace(InferenceRequest("m", id=id, inputs={"IN": tensor}), **fields)


def make_inference(
    id: str = "",
    rows: int = 1,
    width: int = 1,
    statistics: Statistics | None = None,
    **fields: Any,
) -> Inference:
    """An admitted request."""
    request = make_request(id, rows, width, **fields)
    return Inference(request, rows, statistics or Statistics(), "1")


def make_response(mark: int | str = 0, *, final: bool = False) -> InferenceResponse:
    """A response that can be told from others by its parameter `mark`."""
    return InferenceResponse(parameters={"mark": mark}, final=final)


def mark(response: InferenceResponse) -> Any:
    return response.parameters["mark"]


async def marks(stream: AsyncIterator[InferenceResponse]) -> list[Any]:
    """Read a stream to its end."""
    return [mark(response) async for response in stream]


def model_config(**changes: Any) -> ModelConfig:
    """A model with one input and one output of any width, batching up to 8."""
    config = ModelConfig(
        name="m",
        backend="fake",
        max_batch_size=8,
        input=(ModelInput(name="IN", data_type=DataType.INT32, dims=(-1,)),),
        output=(ModelOutput(name="OUT", data_type=DataType.INT32, dims=(-1,)),),
    )
    return replace(config, **changes)


async def turns(count: int = 5) -> None:
    """Let everything run that can run without waiting for anything."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """Let everything run until something is true, which a thread may have to do with."""
    async with asyncio.timeout(5):
        while not condition():
            await turns(1)


class _VirtualSelector(selectors.DefaultSelector):
    """Instead of sleeping until the next timer, puts the clock forward to it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(timeout if timeout is None else 0)
        if not events and timeout:
            self.now += timeout
        return events


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _VirtualSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def in_virtual_time(
    test: Callable[Arguments, Coroutine[Any, Any, None]],
) -> Callable[Arguments, None]:
    """Run a test on a loop whose clock starts at 0 and jumps to whatever is waited for."""

    @wraps(test)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


# -- backends ------------------------------------------------------------------------------------


def by_id(request: InferenceRequest) -> Any:
    return make_response(request.id)


@dataclass
class Script:
    """What a fake backend does, and what was done to it.

    `answer` makes the outcome of one request, and `outcomes`, when given, those of a whole batch.
    A batch waits until `gate` is open. `executed` names the instances that got the batches.
    """

    answer: Callable[[InferenceRequest], Any] = by_id
    outcomes: Callable[[Sequence[InferenceRequest]], Any] | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    batches: list[list[str]] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)
    contexts: list[InstanceContext] = field(default_factory=list)
    finalized: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    @property
    def backend(self) -> type[FakeBackend]:
        return type("ScriptedBackend", (FakeBackend,), {"script": self})


class FakeBackend(Backend):
    """Plays a `Script`; subclasses change what the script does not say."""

    script: ClassVar[Script]

    name = ""

    async def initialize(self, context: InstanceContext) -> None:
        self.script.contexts.append(context)
        self.name = context.name

    async def execute(self, requests: Sequence[InferenceRequest]) -> Any:
        self.script.batches.append([request.id for request in requests])
        self.script.executed.append(self.name)
        await self.script.gate.wait()
        if self.script.outcomes is not None:
            return self.script.outcomes(requests)
        return [self.script.answer(request) for request in requests]

    async def finalize(self) -> None:
        self.script.finalized += 1


class Tokens:
    """An async generator's worth of responses, and what became of it.

    Sends `count` of them, marked 0, 1, ...; then raises `error` if there is one. Without
    responses left it waits at `end` if it is given.
    """

    def __init__(
        self,
        count: int = 0,
        *,
        error: BaseException | None = None,
        end: asyncio.Event | None = None,
    ) -> None:
        self.made = 0
        self.closed = False
        self._count = count
        self._error = error
        self._end = end

    async def generate(self) -> AsyncIterator[InferenceResponse]:
        try:
            for number in range(self._count):
                self.made += 1
                yield make_response(number)
            if self._end is not None:
                await self._end.wait()
            if self._error is not None:
                raise self._error
        finally:
            self.closed = True


# -- instances -----------------------------------------------------------------------------------


class FakeInstance:
    """Takes `seconds` for a batch, and is `held` until `release`; answers with the request's id.

    `batches` are the requests that it got by id, and `began` when it got them. `asked` counts how
    often somebody wanted to know whether it is available.
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
        self.caller: Caller | None = None
        self.lost = False
        self.asked = 0
        self.why_unavailable = "it is away"
        self.health: bool | Exception = True
        self.numbers: Mapping[str, float] = {}
        self.stop_error: Exception | None = None
        self.stopped = 0
        self.batches: list[list[str]] = []
        self.began: list[float] = []
        self.running = 0
        self.most_running = 0
        self._available = True
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
        return self._available

    def go_away(self) -> None:
        self._available = False

    def give_up(self) -> None:
        """Be down for good, and say so."""
        self._available = False
        self.lost = True
        assert self.on_lost is not None
        self.on_lost()

    def release(self) -> None:
        """Let go of what is held, and hold nothing from now on."""
        self._gate.set()

    def come_back(self) -> None:
        """Be available again, and say so."""
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

    async def start(self) -> None:
        pass

    async def healthy(self) -> bool:
        if isinstance(self.health, Exception):
            raise self.health
        return self.health

    def metrics(self) -> Mapping[str, float]:
        return self.numbers

    async def answered(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        if self.stop_error is not None:
            raise self.stop_error
        await asyncio.sleep(0)
        self.stopped += 1


def make_model(*instances: FakeInstance, config: ModelConfig | None = None) -> Model:
    """Version 1 of a model on these instances, without batching."""
    return Model(config or model_config(), 1, instances, DirectScheduler(instances), Statistics())


# -- the loader ----------------------------------------------------------------------------------


class FakeLoader(ModelLoader):
    """Makes models of one `FakeInstance` each, when `gate` is open, and that of the version.

    `failures` are raised for versions, `broken` for models; `before` is run for a model first.
    A model knows what it was loaded from if the loader `remembers`; otherwise it may have changed.
    """

    def __init__(self) -> None:
        super().__init__(lambda _: {}, Reaper())
        self.gate = asyncio.Event()
        self.gate.set()
        self.gates: dict[int, asyncio.Event] = {}
        self.failures: dict[int, BaseException] = {}
        self.broken: dict[str, BaseException] = {}
        self.before: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        self.held = False
        self.remembers = False
        self.instances: list[FakeInstance] = []
        self.given_up = 0
        self.loading = 0
        self.most_loading = 0

    async def load(self, files: ModelFiles, version: int) -> Model:
        self.loading += 1
        self.most_loading = max(self.loading, self.most_loading)
        try:
            await self.gates.get(version, self.gate).wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        finally:
            self.loading -= 1
        if files.name in self.before:
            await self.before[files.name]()
        for failure in (self.failures.get(version), self.broken.get(files.name)):
            if failure is not None:
                raise failure
        instance = FakeInstance(f"{files.name}_{version}", held=self.held)
        self.instances.append(instance)
        config = replace(model_config(), name=files.name)
        instances = (instance,)
        scheduler = DirectScheduler(instances)
        origin = origin_of(files, version) if self.remembers else None
        statistics = Statistics()
        return Model(
            config, version, instances, scheduler, statistics, folder=files.folder, origin=origin
        )


def write_model(
    root: Path, name: str = "m", versions: Iterable[int] = (1,), config: str = ""
) -> None:
    """A model's folder with these versions; `config` is added to its `config.pbtxt`."""
    (root / name).mkdir(exist_ok=True)
    (root / name / "config.pbtxt").write_text(f'backend: "fake" {config}')
    for version in versions:
        (root / name / str(version)).mkdir(exist_ok=True)


async def execute(instance: Instance, batch: Sequence[Inference]) -> None:
    """Have a batch executed, and wait until the next may come."""
    done = asyncio.Event()
    instance.execute(batch, done.set)
    await done.wait()


def answer(inference: Inference) -> None:
    """Answer with the request's id as mark, and with its input as output if it has one."""
    request = inference.request
    outputs = {"OUT": request.inputs["IN"]} if "IN" in request.inputs else {}
    inference.stream.send(InferenceResponse(outputs, {"mark": request.id}, final=True))


def sent(*responses: InferenceResponse) -> ResponseStream:
    """A stream into which these responses were sent."""
    stream = ResponseStream()
    for response in responses:
        stream.send(response)
    return stream


class KeptLog:
    """`LogControl` that only keeps the settings."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {
            "log_file": "",
            "log_info": True,
            "log_warning": True,
            "log_error": True,
            "log_verbose_level": 0,
            "log_format": "default",
        }

    def current(self) -> dict[str, Any]:
        return self.values

    def change(self, values: Mapping[str, Any]) -> None:
        self.values |= values
