"""The direct strategy: each sequence has a fixed row of one instance's batches (S-13, S-14)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from penstock.core.errors import InferenceError
from penstock.scheduling.batching.forming import Signature
from penstock.scheduling.direct import InstancePool
from penstock.scheduling.sequences.instance import RowInstance
from penstock.scheduling.sequences.strategy import RequestSource, SequenceStep
from penstock.scheduling.sequences.table import LiveSequence, SequenceTable, Slot
from penstock.scheduling.timing import TICK


@dataclass(frozen=True, slots=True)
class DirectPolicy:
    """The queue delay of requests, in seconds, and how many slots with requests make it pointless.

    `enough` is a share of the slots, from 0 to 1; without it, or without a delay, none waits.
    Requests of one batch have the same `signature`.
    """

    slots: int
    signature: Signature
    max_queue_delay: float = 0.0
    enough: float = 0.0

    def due(self, ready: int, since: float) -> float:
        """The latest time for a batch of `ready` requests, the oldest of them since `since`."""
        waits = self.max_queue_delay and self.enough
        return -inf if not waits or ready / self.slots >= self.enough else self.delayed(since)

    def delayed(self, since: float) -> float:
        return since + self.max_queue_delay


class DirectStrategy:
    """Forms the batches of one instance from the sequences in its slots."""

    def __init__(
        self,
        policy: DirectPolicy,
        instance: RowInstance,
        slots: Sequence[Slot],
        table: SequenceTable[SequenceStep],
        source: RequestSource,
    ) -> None:
        self._policy = policy
        self._instance = instance
        self._slots = slots
        self._table = table
        self._source = source
        self._pool = InstancePool([instance], self._dispatch)
        self._loop = asyncio.get_running_loop()
        self._wake: asyncio.Handle | None = None
        self._soon = False

    def offer(self, _: LiveSequence[SequenceStep]) -> None:
        # Once per turn of the event loop, so that requests of one read execute together.
        if not self._soon:
            self._cancel_wake()
            self._soon = True
            self._wake = self._loop.call_soon(self._woken)

    def abandon(self, error: InferenceError) -> None:
        """No issued request is queued here."""

    async def drain(self) -> None:
        await self._pool.drain()
        self._cancel_wake()

    def _woken(self) -> None:
        self._wake, self._soon = None, False
        self._dispatch()

    def _cancel_wake(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake, self._soon = None, False

    def _dispatch(self) -> None:
        ready = self._ready()
        if not ready or self._source.held or (instance := self._pool.idle()) is None:
            return
        now = self._loop.time()
        due = self._policy.due(len(ready), min(s.waiting[0].since for s in ready))
        if due > now:
            self._cancel_wake()
            self._wake = self._loop.call_at(max(due, now + TICK), self._woken)
            return
        self._instance.rows = {}
        for sequence in self._compatible(ready):
            assert sequence.slot is not None
            self._instance.rows[self._source.issue(sequence)] = sequence.slot.number
        self._pool.run(instance, list(self._instance.rows))

    def _ready(self) -> list[LiveSequence[SequenceStep]]:
        holders = (self._table.holder(slot) for slot in self._slots)
        return [sequence for sequence in holders if sequence is not None and sequence.ready]

    def _compatible(
        self, ready: list[LiveSequence[SequenceStep]]
    ) -> list[LiveSequence[SequenceStep]]:
        """The sequences whose requests have the signature of the first one's."""
        signature = self._policy.signature
        shapes = [signature(self._source.prepare(sequence).request) for sequence in ready]
        return [q for q, shape in zip(ready, shapes, strict=True) if shape == shapes[0]]
