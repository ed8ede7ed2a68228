"""The oldest strategy: the oldest requests of the sequences form dynamic batches (S-15)."""

from __future__ import annotations

from penstock.core.errors import InferenceError
from penstock.scheduling.batching.dynamic_batcher import DynamicBatcher
from penstock.scheduling.batching.settings import BatcherSettings
from penstock.scheduling.sequences.instance import WatchedInstance
from penstock.scheduling.sequences.live_sequence import LiveSequence
from penstock.scheduling.sequences.strategy import Source, Step


class OldestStrategy:
    """A dynamic batcher in front of one instance; a sequence has one request in it at most."""

    def __init__(
        self, settings: BatcherSettings, instance: WatchedInstance, source: Source
    ) -> None:
        self._source = source
        self._batcher = DynamicBatcher(settings, [instance])

    def offer(self, sequence: LiveSequence[Step]) -> None:
        self._source.prepare(sequence)
        self._batcher.schedule(self._source.issue(sequence))

    def abandon(self, error: InferenceError) -> None:
        self._batcher.abandon(error)

    async def drain(self) -> None:
        await self._batcher.drain()
