"""The one backend of the simulation: what it does, requests say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

import numpy as np

from penstock.core.backend import Backend, InstanceContext, Outcome, Traits
from penstock.core.errors import UnavailableError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import Tensor


class Watched:
    """What backends have seen that must never be."""

    faults: ClassVar[list[str]] = []


def answer(values: Any) -> Any:
    """What a model answers to its input."""
    return values * 2 + 1


class PlayedBackend(Backend):
    """Answers `X` by `answer`; a decoupled model answers `answers` times, and adds 0, 1, 2 ...

    Parameters of a request: `work` and `pause` are seconds before the answer and between answers,
    `fails` an error in its place. A model of sequences adds how many of a sequence came before.
    """

    traits = Traits(serial=True)

    async def initialize(self, context: InstanceContext) -> None:
        self._config = context.config
        self._executing = 0
        self._sequences: dict[int | str, int] = {}

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        self._executing += 1
        if self._executing > 1 and self.traits.serial:
            Watched.faults.append(f"{self._config.name}: two executions at once")
        if len(requests) > max(self._config.max_batch_size, 1):
            Watched.faults.append(f"{self._config.name}: a batch of {len(requests)}")
        work = max(float(request.parameters.get("work", 0)) for request in requests)
        try:
            await asyncio.sleep(work)
        finally:
            self._executing -= 1
        return [self._outcome(request) for request in requests]

    def _outcome(self, request: InferenceRequest) -> Outcome:
        if request.parameters.get("fails"):
            return UnavailableError("as it was told")
        values = answer(request.inputs["X"].numpy())
        if self._config.sequence_batching is not None:
            before = 0 if request.sequence_start else self._sequences.get(request.correlation_id, 0)
            self._sequences[request.correlation_id] = before + 1
            values = values + before * 1_000_000
        if self._config.decoupled:
            return self._answers(request, values)
        return InferenceResponse({"Y": Tensor.from_numpy(values)})

    async def _answers(
        self, request: InferenceRequest, values: np.ndarray
    ) -> AsyncIterator[InferenceResponse]:
        for number in range(int(request.parameters.get("answers", 1))):
            await asyncio.sleep(float(request.parameters.get("pause", 0)))
            yield InferenceResponse({"Y": Tensor.from_numpy(values + number)}, final=False)


class PlayedEngine(PlayedBackend):
    """The same, for engines that batch by themselves."""

    traits = Traits(serial=False)
