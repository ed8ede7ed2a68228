"""A sequence batcher between clients and instances that record their batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fakes import make_response, model_config
from penstock.core.config import (
    Control,
    ControlInput,
    ControlKind,
    ModelConfig,
    SequenceBatching,
    StrategyDirect,
    StrategyOldest,
)
from penstock.core.errors import InferenceError, UnavailableError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import DataType, Tensor
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics
from penstock.models.config.defaults import normalized
from penstock.models.loading.schedulers import sequence_batcher
from penstock.scheduling.sequences import SequenceBatcher

CONTROLS = (
    *(
        ControlInput(kind, (Control(ControlKind(f"CONTROL_SEQUENCE_{kind}"), (0, 1)),))
        for kind in ("START", "END", "READY")
    ),
    ControlInput(
        "CORRID", (Control(ControlKind.CONTROL_SEQUENCE_CORRID, data_type=DataType.UINT64),)
    ),
)


def config(**batching: Any) -> ModelConfig:
    """A model of up to 4 rows with all control tensors; direct unless `oldest` is given."""
    batching.setdefault("control_input", CONTROLS)
    rows = batching.pop("rows", 4)
    made = model_config(max_batch_size=rows, sequence_batching=SequenceBatching(**batching))
    return normalized(made)


def oldest(**fields: Any) -> ModelConfig:
    return config(oldest=StrategyOldest(**fields))


def direct(**fields: Any) -> ModelConfig:
    return config(direct=StrategyDirect(**fields))


BOTH = pytest.mark.parametrize("model", [direct(), oldest()], ids=["direct", "oldest"])


@dataclass
class Row:
    """What an instance has seen of one request."""

    id: str
    sequence: int | str
    start: int = 0
    end: int = 0
    ready: int = 1
    corrid: int = 0
    count: int | None = None

    @classmethod
    def of(cls, request: InferenceRequest) -> Row:
        seen = cls(request.id, request.correlation_id)
        for name in ("START", "END", "READY", "CORRID", "COUNT"):
            if name in request.inputs:
                setattr(seen, name.lower(), int(request.inputs[name].numpy().reshape(-1)[0]))
        return seen


Answer = Callable[[Inference], InferenceResponse | None]


def echo(inference: Inference) -> InferenceResponse | None:
    return make_response(inference.request.id, final=True)


class Recorder:
    """Keeps every batch; `seconds` pass until it answers, after or before it says so."""

    def __init__(
        self,
        name: str = "m_0",
        *,
        seconds: float = 0.0,
        serial: bool = True,
        answers_first: bool = True,
        answer: Answer = echo,
    ) -> None:
        self.name = name
        self.serial = serial
        self.on_available: Callable[[], None] | None = None
        self.available = True
        self.memory: object | None = self
        self.batches: list[list[Row]] = []
        self.requests: list[list[InferenceRequest]] = []
        self.began: list[float] = []
        self._seconds = seconds
        self._answers_first = answers_first
        self._answer = answer
        self._running: dict[int, tuple[Sequence[Inference], Callable[[], None]]] = {}

    @property
    def ids(self) -> list[list[str]]:
        return [[row.id for row in batch] for batch in self.batches]

    def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self.batches.append([Row.of(inference.request) for inference in batch])
        self.requests.append([inference.request for inference in batch])
        self.began.append(loop.time())
        for inference in batch:
            inference.started(time.monotonic_ns())
        number = len(self.batches)
        self._running[number] = batch, done
        loop.call_later(self._seconds, self._finish, number)

    def _finish(self, number: int) -> None:
        if number not in self._running:  # it died meanwhile
            return
        batch, done = self._running.pop(number)
        if not self._answers_first:
            done()
        batch[0].statistics.executed(len(batch), 0, 0, 0)
        for inference in batch:
            if (response := self._answer(inference)) is not None:
                inference.stream.send(response)
        if self._answers_first:
            done()

    def die(self) -> None:
        """As a process that is killed."""
        self.available, self.memory = False, None
        running, self._running = self._running, {}
        for batch, _ in running.values():
            for inference in batch:
                inference.fail(UnavailableError("killed"))
        for _, done in running.values():
            done()

    def come_back(self) -> None:
        self.available, self.memory = True, object()
        assert self.on_available is not None
        self.on_available()


class Scene:
    """One batcher, its instances, and clients that send to it."""

    def __init__(self, config: ModelConfig, *instances: Recorder, path: Any = None) -> None:
        self.statistics = Statistics()
        self.instances = list(instances or (Recorder(),))
        self.gone: list[Recorder] = []
        self.make: Callable[[str], Recorder] = Recorder
        self.batcher: SequenceBatcher = sequence_batcher(config, path, self.instances)

    @property
    def instance(self) -> Recorder:
        return self.instances[0]

    def resize(self, keep: int) -> None:
        """Let the first instances go but for `keep`, and have one come where none is left."""
        staying = [instance for instance in self.instances if instance not in self.gone]
        self.gone += staying[: len(staying) - keep]
        staying = staying[max(0, len(staying) - keep) :]
        while len(staying) < max(1, keep):
            staying.append(self.make(f"m_{len(self.instances)}"))
            self.instances.append(staying[-1])
        self.batcher.resize(staying)

    def send(
        self, sequence: int | str, id: str = "", *, rows: int = 1, width: int = 1, **fields: Any
    ) -> Inference:
        """A request; `start` and `end` are short for the flags."""
        inputs = {"IN": Tensor.from_numpy(np.ones((rows, width), np.int32))}
        request = InferenceRequest("m", id=id, correlation_id=sequence, inputs=inputs)
        for short in ("start", "end"):
            if short in fields:
                fields[f"sequence_{short}"] = fields.pop(short)
        inference = Inference(request._replace(**fields), rows, self.statistics, "1")
        try:
            self.batcher.schedule(inference)
        except InferenceError as error:
            inference.refused(error)
            raise
        return inference

    def send_all(self, sequence: int | str, ids: str) -> list[Inference]:
        """A whole sequence; each letter is a request."""
        last = len(ids) - 1
        return [self.send(sequence, id, start=at == 0, end=at == last) for at, id in enumerate(ids)]


async def outcome(inference: Inference) -> Any:
    """The mark of the answer, or the error."""
    try:
        marks = [response.parameters["mark"] async for response in inference.stream]
    except Exception as error:
        return error
    return marks[0] if marks else None  # read no further by who left late


async def outcomes(inferences: Sequence[Inference]) -> list[Any]:
    return [await outcome(inference) for inference in inferences]
