"""Ensembles for tests: plans from a short notation, and models of steps that answer on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.core.errors import InferenceError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.inflight.inference import ComputeTimes, Inference
from penstock.inflight.statistics import Statistics
from penstock.scheduling.ensembles.plan import EnsemblePlan, MappedTensor, PlannedStep
from penstock.scheduling.ensembles.scheduler import EnsembleScheduler


def tensor(*values: int) -> Tensor:
    return Tensor.from_numpy(np.array(values, np.int32))


def values(response: InferenceResponse) -> dict[str, list[int]]:
    """Outputs of a response by name."""
    return {name: output.numpy().tolist() for name, output in response.outputs.items()}


def step(model: str, inputs: str, outputs: str, *, decoupled: bool = False) -> PlannedStep:
    """A step whose tensors have the same names as those of the ensemble."""
    return PlannedStep(model, "", _links(inputs), _links(outputs), decoupled)


def plan(steps: Sequence[PlannedStep], outputs: str, optional: Sequence[str] = ()) -> EnsemblePlan:
    decoupled = any(step.decoupled for step in steps)
    return EnsemblePlan("ens", tuple(steps), _links(outputs), tuple(optional), decoupled)


def _links(names: str) -> tuple[MappedTensor, ...]:
    return tuple(MappedTensor(name, name) for name in names.split())


@dataclass(eq=False)
class FakeModel:
    """Answers with `answer`; without one, when the test calls `reply`, `send` or uses `streams`.

    `requests` are those that it got, and `cancelled` those whose reader left.
    """

    answer: Callable[[InferenceRequest], Mapping[str, Tensor]] | None = None
    refusal: InferenceError | None = None
    requests: list[InferenceRequest] = field(default_factory=list)
    streams: list[ResponseStream] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    times: tuple[int, int, int] = (1, 2, 3)

    def infer(
        self, request: InferenceRequest, within: ComputeTimes | None = None
    ) -> ResponseStream:
        if self.refusal is not None:
            raise self.refusal
        number = len(self.requests)
        stream = ResponseStream()
        self.requests.append(request)
        self.streams.append(stream)
        stream.connect(lambda: self.cancelled.append(number))
        if within is not None:
            within.add(*self.times)
        if self.answer is not None:
            stream.send(InferenceResponse(self.answer(request), final=True))
        return stream

    def reply(self, *, to: int = -1, final: bool = True, **outputs: Any) -> None:
        """Answer a request with tensors; parameters go in `parameters`."""
        parameters = outputs.pop("parameters", {})
        response = InferenceResponse(outputs, parameters, final)
        self.streams[to].send(response)

    def send(self, call: int, outputs: Mapping[str, Tensor], *, final: bool) -> None:
        """Answer a request."""
        self.streams[call].send(InferenceResponse(outputs, final=final))

    @property
    def running(self) -> int:
        """Calls that are still open."""
        return sum(not stream.ended for stream in self.streams)


@dataclass
class Asked:
    """One request to an ensemble of fake models."""

    inference: Inference
    statistics: Statistics

    @property
    def stream(self) -> ResponseStream:
        return self.inference.stream

    def taken(self) -> list[dict[str, list[int]]]:
        """The responses so far, without waiting."""
        return [values(response) for response in self.stream.take_ready()]

    @property
    def failure(self) -> InferenceError:
        """The error that the stream has ended with."""
        assert self.stream.ended
        assert self.stream.error is not None
        return self.stream.error


def ask(scheduler: EnsembleScheduler, inputs: Mapping[str, Tensor], **fields: Any) -> Asked:
    statistics = Statistics()
    request = InferenceRequest("ens", inputs=inputs, **fields)
    inference = Inference(request, 1, statistics, "1")
    scheduler.schedule(inference)
    return Asked(inference, statistics)


CHAIN = plan([step("first", "A", "B"), step("second", "B", "C")], "C")
"""One step, and then another."""
