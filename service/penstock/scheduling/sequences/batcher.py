"""Sequence batching: the waiting around `SequenceTable`, for both strategies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from penstock.core.errors import (
    InferenceError,
    RejectedError,
    RequestCancelledError,
)
from penstock.inflight.inference import Inference
from penstock.scheduling import Instance
from penstock.scheduling.sequences.admission import (
    LostSequences,
    RequestPreparation,
    SequenceAdmission,
)
from penstock.scheduling.sequences.instance import ObservedInstance, StatefulInstance
from penstock.scheduling.sequences.instance_table import InstanceEntry, InstanceTable
from penstock.scheduling.sequences.strategy import (
    MakeStrategy,
    SequenceStep,
    Strategy,
    StrategyContext,
)
from penstock.scheduling.sequences.table import LiveSequence, SequenceTable, Slot
from penstock.scheduling.timing import TICK


@dataclass(frozen=True, slots=True)
class SequencePolicy:
    """How sequences of a model are treated; `max_idle` is in seconds, `slots` per instance.

    `iterative` models are given a request again and again until they have done with it, so each
    request may be a sequence of its own. `decoupled` ones may go on answering a request while
    they take the next.
    """

    model: str
    slots: int
    max_idle: float
    iterative: bool = False
    decoupled: bool = False


class SequenceBatcher:
    """Gives each sequence a slot of one instance, and its requests to that one in order.

    A request is done when it was executed and, unless the model is decoupled, answered; then the
    next of its sequence may follow. Whoever leaves before that takes the rest of the sequence
    along (S-10): what a model has missed once cannot be made good.
    """

    def __init__(
        self,
        policy: SequencePolicy,
        preparation: RequestPreparation,
        instances: Sequence[StatefulInstance],
        make_strategy: MakeStrategy,
    ) -> None:
        self._policy = policy
        self._preparation = preparation
        self._loop = asyncio.get_running_loop()
        self._table: SequenceTable[SequenceStep] = SequenceTable()
        self._steps: dict[Inference, SequenceStep] = {}
        self._losses = LostSequences(policy.model)
        self._entrance = SequenceAdmission(
            policy.model, self._table, self._losses, iterative=policy.iterative
        )
        self._freed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._reap_at = inf

        def make(
            instance: StatefulInstance, slots: Sequence[Slot]
        ) -> tuple[ObservedInstance, Strategy]:
            return make_strategy(
                StrategyContext(instance, slots, self._table, self, self._executed)
            )

        self._seats = InstanceTable(policy.slots, self._table, make, self._notice_losses)
        self._seats.replace(instances)

    # -- Scheduler ----------------------------------------------------------------------------

    def schedule(self, inference: Inference) -> None:
        self._entrance.check(inference)
        self._notice_losses()
        request, now = inference.request, self._loop.time()
        sequence = self._entrance.sequence(request, now)
        step = SequenceStep(inference, sequence, now)
        self._preparation.admit(inference, sequence)
        inference.on_left = partial(self._left, step)
        expires = now + request.timeout / 1e6 if request.timeout else inf
        self._table.push(sequence, step, now, end=request.sequence_end, expires=expires)
        self._offer([sequence])
        self._watch()

    def abandon(self, error: InferenceError) -> None:
        for sequence in list(self._table.sequences):
            self._drop(self._table.cut(sequence)[0], error)
        for seat in self._seats:
            seat.strategy.abandon(error)
        self._freed.set()

    async def drain(self) -> None:
        for seat in self._seats:
            await seat.strategy.drain()
        for sequence in list(self._table.sequences):
            self._table.cut(sequence)
        self._freed.set()
        if self._timer is not None:
            self._timer.cancel()

    # -- Resizable ----------------------------------------------------------------------------

    def resize(self, instances: Sequence[StatefulInstance]) -> None:
        """Begin sequences on these from now on; others end those that they have (S-23)."""
        self._seats.replace(instances)
        self._notice_losses()

    # -- SequenceScheduler --------------------------------------------------------------------

    @property
    def has_sequences(self) -> bool:
        """Whether any sequence is under way."""
        return not self._table.empty

    async def finished(self) -> None:
        """Wait until no sequence is under way."""
        await self._until(lambda: self._table.empty)

    async def vacated(self, instance: Instance) -> None:
        """Wait until an instance that was left out has no sequence any more."""
        seat = self._seats.of(instance)
        if seat is not None:
            await self._until(partial(self._table.vacant, seat.number))
            await seat.strategy.drain()
            self._seats.remove(seat)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._freed.clear()
            await self._freed.wait()

    # -- Source -------------------------------------------------------------------------------

    def prepare(self, sequence: LiveSequence[SequenceStep]) -> Inference:
        inference = sequence.waiting[0].inference
        self._preparation.prepare(inference, sequence)
        return inference

    def issue(self, sequence: LiveSequence[SequenceStep]) -> Inference:
        step = self._table.take(sequence)
        self._steps[step.inference] = step
        return step.inference

    # -- steps --------------------------------------------------------------------------------

    def _offer(self, sequences: Iterable[LiveSequence[SequenceStep]]) -> None:
        """Sequences may be ready, and perhaps others have ended."""
        self._freed.set()
        for sequence in sequences:
            if sequence.ready:
                assert sequence.slot is not None
                self._seats[sequence.slot.instance].strategy.offer(sequence)

    def _executed(self, batch: Sequence[Inference]) -> None:
        """An instance has executed these, and may have died of it."""
        self._notice_losses()
        for inference in batch:
            step = self._steps.get(inference)
            if step is None:  # an empty row
                continue
            step.executed = True
            if self._policy.decoupled or inference.abandoned or inference.rescheduled:
                self._finish(step)

    def _left(self, step: SequenceStep) -> None:
        """The request has its answer, or nobody waits for one any more."""
        if step.sequence.taken is not step:
            dropped, given = self._table.cut(step.sequence, step)
            self._drop(dropped, _cancelled(step.sequence))
            self._offer(given)
        elif step.executed or not step.inference.compute_start:
            self._finish(step)

    def _finish(self, step: SequenceStep) -> None:
        """The request that was taken is done, or no instance will ever see it."""
        sequence, inference = step.sequence, step.inference
        del self._steps[inference]
        if inference.rescheduled and not inference.abandoned:
            self._take_again(step)
            return
        inference.on_left = None
        if self._policy.iterative:
            self._table.end(sequence)
        if self._breaks(step):
            self._drop(self._table.cut(sequence)[0], _cancelled(sequence))
        self._offer([sequence, *self._table.done(sequence, self._loop.time())])

    def _breaks(self, step: SequenceStep) -> bool:
        """Whether the sequence has lost its thread: not executed, or its states not taken."""
        cancelled = isinstance(step.inference.stream.error, RequestCancelledError)
        return not step.executed or (cancelled and self._preparation.keeps_state)

    def _take_again(self, step: SequenceStep) -> None:
        """The model wants to go on with the request in a later batch (S-20)."""
        inference = step.inference
        inference.restarted()
        inference.request = replace(inference.request, sequence_start=False, sequence_end=False)
        step.executed, step.since = False, self._loop.time()
        self._table.put_back(step.sequence, step.since)
        self._offer([step.sequence])

    def _drop(self, steps: Iterable[SequenceStep], error: InferenceError) -> None:
        """Fail requests that are no longer in the table."""
        for step in steps:
            step.inference.on_left = None
            step.inference.fail(error)

    # -- instances that go down ---------------------------------------------------------------

    def _notice_losses(self) -> None:
        """Look who is down, who is back, and who was both since the last time."""
        for seat, before in self._seats.changed():
            if before is not None:
                self._lose(seat)
            if seat.memory is not None and not seat.leaving:
                self._offer(self._table.restore(seat.number))

    def _lose(self, seat: InstanceEntry) -> None:
        """The instance has forgotten what it knew of its sequences."""
        now = self._loop.time()
        for sequence, dropped in self._table.lose(seat.number):
            error = self._losses.add(sequence.id, seat.name, now)
            self._drop(dropped, error)
            taken = sequence.taken
            if taken is not None and not taken.inference.compute_start:
                taken.inference.fail(error)
        self._freed.set()

    # -- time ---------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Look again when the next sequence has been idle, or waiting, for too long."""
        idle = self._table.untouched_since() + self._policy.max_idle
        when = min(idle, self._table.next_expiry())
        if when >= self._reap_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._reap_at = when
        self._timer = self._loop.call_at(max(when, self._loop.time() + TICK), self._reap)

    def _reap(self) -> None:
        """End idle sequences (S-09), and those that waited too long for a slot (S-08)."""
        self._timer, self._reap_at = None, inf
        self._notice_losses()
        now = self._loop.time()
        expired = RejectedError("timeout of the corresponding sequence has been expired")
        self._drop(self._table.expired(now), expired)
        before = now - self._policy.max_idle
        self._losses.expire(before)
        self._offer(self._table.reap(before, now))
        self._watch()


def _cancelled(sequence: LiveSequence[SequenceStep]) -> RequestCancelledError:
    return RequestCancelledError(
        f"sequence {sequence.id} was cancelled with one of its earlier requests"
    )
