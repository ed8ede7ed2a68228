"""Instances as the batcher of sequences sees them: they tell what they have executed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics
from penstock.scheduling import Instance
from penstock.scheduling.sequences.controls import Controls

OnExecuted = Callable[[Sequence[Inference]], None]


class StatefulInstance(Instance, Protocol):
    """An instance that may forget its sequences: `memory` is another object then.

    It is `None` while the instance cannot work.
    """

    @property
    def memory(self) -> object | None: ...


class ObservedInstance:
    """An instance; calls `executed` with every batch that it has executed."""

    def __init__(self, instance: StatefulInstance, executed: OnExecuted) -> None:
        self.name = instance.name
        self.serial = instance.serial
        self.on_available: Callable[[], None] | None = None
        self._instance = instance
        self._executed = executed

    @property
    def available(self) -> bool:
        return self._instance.available

    @property
    def memory(self) -> object | None:
        return self._instance.memory

    def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        def executed() -> None:
            self._executed(batch)
            done()

        self._instance.execute(batch, executed)


@dataclass(slots=True)
class _Bystander(Statistics):
    """Counters of what nobody asked for; executions are those of the other rows as well."""

    neighbour: Statistics = field(default_factory=Statistics)

    def executed(self, rows: int, *times: int) -> None:
        self.neighbour.executed(rows, *times)


class RowInstance(ObservedInstance):
    """An instance whose batches have a sequence's request in the row of its slot (S-13).

    Rows of sequences without a request are filled with zeros and marked as not ready. Batches
    come one at a time, since each may hold any of the slots.
    """

    def __init__(
        self, instance: StatefulInstance, executed: OnExecuted, controls: Controls
    ) -> None:
        super().__init__(instance, executed)
        self.serial = True
        self.rows: dict[Inference, int] = {}
        """The row of each request of the next batch."""
        self._controls = controls

    def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        empty = self._empty_rows(batch)
        rows = sorted((*batch, *empty), key=self.rows.__getitem__) if empty else batch

        def settle() -> None:
            for inference in empty:  # which a model may have left without an answer
                inference.stream.close()
            done()

        def soon() -> None:
            # The answers come in the same turn of the loop: who waits for them can be in the next.
            asyncio.get_running_loop().call_soon(settle)

        super().execute(rows, soon)

    def _empty_rows(self, batch: Sequence[Inference]) -> list[Inference]:
        """Requests for the rows below the highest that have none."""
        taken = {self.rows[inference] for inference in batch}
        missing = [row for row in range(max(taken)) if row not in taken]
        if not missing:
            return []
        request, nobody = self._empty(batch[0].request), _Bystander(neighbour=batch[0].statistics)
        empty = {Inference(request, 1, nobody): row for row in missing}
        self.rows.update(empty)
        return list(empty)

    def _empty(self, like: InferenceRequest) -> InferenceRequest:
        """A request that means nothing, shaped like one of the same batch."""
        inputs = {name: _zeros(tensor) for name, tensor in like.inputs.items()}
        inputs |= self._controls.not_ready()
        return replace(
            like,
            id="",
            inputs=inputs,
            parameters={},
            correlation_id=0,
            sequence_start=False,
            sequence_end=False,
            deadline=None,
        )


def _zeros(like: Tensor) -> Tensor:
    if like.datatype is DataType.BYTES:
        return Tensor(like.datatype, like.shape, bytes(4 * int(np.prod(like.shape))))
    return Tensor(like.datatype, like.shape, bytes(like.nbytes))
