"""Strategies of sequence batching: the interface, and the oldest strategy (S-15)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.core.errors import InferenceError
from penstock.inflight.inference import Inference
from penstock.scheduling.batching.dynamic_batcher import BatcherSettings, DynamicBatcher
from penstock.scheduling.sequences.instance import ObservedInstance, OnExecuted, StatefulInstance
from penstock.scheduling.sequences.table import LiveSequence, SequenceTable, Slot


class SequenceStep:
    """One request of a sequence, queued at `since` on the loop's clock."""

    __slots__ = ("executed", "inference", "sequence", "since")

    def __init__(
        self, inference: Inference, sequence: LiveSequence[SequenceStep], since: float
    ) -> None:
        self.inference = inference
        self.sequence = sequence
        self.since = since
        self.executed = False


class RequestSource(Protocol):
    """Provides a strategy with the requests of ready sequences.

    `held` is true while the first batch waits for more requests, in all instances together.
    """

    @property
    def held(self) -> bool: ...

    def prepare(self, sequence: LiveSequence[SequenceStep]) -> Inference:
        """Complete the next request with control tensors and states; it stays queued."""

    def issue(self, sequence: LiveSequence[SequenceStep]) -> Inference:
        """Take the prepared request off the queue; the instance notifies of its execution."""


class Strategy(Protocol):
    """Forms the batches of one instance from the sequences that have its slots."""

    def offer(self, sequence: LiveSequence[SequenceStep]) -> None:
        """Notify that a sequence, which has a slot of this instance, is ready."""

    def abandon(self, error: InferenceError) -> None:
        """Fail the issued requests that wait for the instance."""

    async def drain(self) -> None:
        """Wait until no execution runs."""


@dataclass(frozen=True, slots=True)
class StrategyContext:
    """The arguments of a strategy: an instance, its slots, and the source of requests."""

    instance: StatefulInstance
    slots: Sequence[Slot]
    table: SequenceTable[SequenceStep]
    source: RequestSource
    executed: OnExecuted


MakeStrategy = Callable[[StrategyContext], tuple[ObservedInstance, Strategy]]


class OldestStrategy:
    """A dynamic batcher in front of one instance, with at most one request of each sequence."""

    def __init__(
        self, settings: BatcherSettings, instance: ObservedInstance, source: RequestSource
    ) -> None:
        self._source = source
        self._batcher = DynamicBatcher(settings, [instance])

    def offer(self, sequence: LiveSequence[SequenceStep]) -> None:
        self._source.prepare(sequence)
        self._batcher.schedule(self._source.issue(sequence))

    def abandon(self, error: InferenceError) -> None:
        self._batcher.abandon(error)

    async def drain(self) -> None:
        await self._batcher.drain()
