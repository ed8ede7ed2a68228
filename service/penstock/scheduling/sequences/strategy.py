"""Strategies of sequence batching: the interface of both, and the oldest strategy (S-15)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.core.errors import InferenceError
from penstock.inflight.inference import Inference
from penstock.scheduling.batching.dynamic_batcher import DynamicBatcher
from penstock.scheduling.batching.settings import BatcherSettings
from penstock.scheduling.sequences.instance import ObservedInstance, OnExecuted, StatefulInstance
from penstock.scheduling.sequences.table import LiveSequence, SequenceTable, Slot


class SequenceStep:
    """One request of a sequence, since `since` on the loop's clock."""

    __slots__ = ("executed", "inference", "sequence", "since")

    def __init__(
        self, inference: Inference, sequence: LiveSequence[SequenceStep], since: float
    ) -> None:
        self.inference = inference
        self.sequence = sequence
        self.since = since
        self.executed = False


class RequestSource(Protocol):
    """Where a strategy gets the requests of sequences that are ready."""

    def prepare(self, sequence: LiveSequence[SequenceStep]) -> Inference:
        """The next request as the model shall see it; it stays where it is."""

    def issue(self, sequence: LiveSequence[SequenceStep]) -> Inference:
        """Take the request that was prepared; the instance will tell when it was executed."""


class Strategy(Protocol):
    """Batches the requests of the sequences that have a slot of one instance."""

    def offer(self, sequence: LiveSequence[SequenceStep]) -> None:
        """The sequence, which has a slot of this instance, is ready."""

    def abandon(self, error: InferenceError) -> None:
        """Fail the requests that were issued and wait for the instance."""

    async def drain(self) -> None:
        """Wait until the instance executes nothing any more."""


@dataclass(frozen=True, slots=True)
class StrategyContext:
    """An instance, its slots, and how its strategy gets at their requests."""

    instance: StatefulInstance
    slots: Sequence[Slot]
    table: SequenceTable[SequenceStep]
    source: RequestSource
    executed: OnExecuted


MakeStrategy = Callable[[StrategyContext], tuple[ObservedInstance, Strategy]]


class OldestStrategy:
    """A dynamic batcher in front of one instance; a sequence has one request in it at most."""

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
