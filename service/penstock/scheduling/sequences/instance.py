"""Wrappers of instances that notify the sequence batcher of executed batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from penstock.core.request import InferenceRequest, RequestScope
from penstock.core.tensor import DataType, Tensor
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics
from penstock.scheduling import Instance
from penstock.scheduling.sequences.controls import Controls

OnExecuted = Callable[[Sequence[Inference]], None]


class StatefulInstance(Instance, Protocol):
    """An instance that keeps state of sequences: `memory` identifies it, `None` while it is down.

    It is another object after a restart, which has lost that state.
    """

    @property
    def memory(self) -> object | None: ...


class ObservedInstance:
    """Wraps an instance; calls `executed` with every batch that was executed."""

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
class _PaddingStatistics(Statistics):
    """Statistics of padding rows, discarded but for executions, which are their neighbour's too."""

    neighbour: Statistics = field(default_factory=Statistics)

    def executed(self, rows: int, *times: int) -> None:
        self.neighbour.executed(rows, *times)


class RowInstance(ObservedInstance):
    """Wraps an instance so that each request is in the row of its sequence's slot (S-13).

    Rows of sequences without a request are padded with zeros and marked as not ready. Batches are
    executed one at a time, since each may hold any of the slots.
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
        empty = self._padding_rows(batch)
        rows = sorted((*batch, *empty), key=self.rows.__getitem__) if empty else batch

        def settle() -> None:
            for inference in empty:  # a model may leave them unanswered
                inference.stream.close()
            done()

        def soon() -> None:
            # The responses arrive in this turn of the loop: requests that follow can join the next.
            asyncio.get_running_loop().call_soon(settle)

        super().execute(rows, soon)

    def _padding_rows(self, batch: Sequence[Inference]) -> list[Inference]:
        """Padding for the rows without a request below the highest row."""
        taken = {self.rows[inference] for inference in batch}
        missing = [row for row in range(max(taken)) if row not in taken]
        if not missing:
            return []
        request = self._padding_request(batch[0].request)
        statistics = _PaddingStatistics(neighbour=batch[0].statistics)
        empty = {Inference(request, 1, statistics): row for row in missing}
        self.rows.update(empty)
        return list(empty)

    def _padding_request(self, like: InferenceRequest) -> InferenceRequest:
        """A request of zeros, in the shapes of one of the same batch."""
        inputs = {name: _zeros(tensor) for name, tensor in like.inputs.items()}
        inputs |= self._controls.not_ready()
        return like._replace(
            id="",
            inputs=inputs,
            parameters={},
            correlation_id=0,
            sequence_start=False,
            sequence_end=False,
            scope=RequestScope(),
        )


def _zeros(like: Tensor) -> Tensor:
    if like.datatype is DataType.BYTES:
        return Tensor(like.datatype, like.shape, bytes(4 * int(np.prod(like.shape))))
    return Tensor(like.datatype, like.shape, bytes(like.nbytes))
