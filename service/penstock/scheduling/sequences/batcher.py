"""Sequence batching: the waiting around `SequenceTable`, for both strategies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from penstock.core.errors import (
    InferenceError,
    RejectedError,
    RequestCancelledError,
)
from penstock.core.inference import Inference
from penstock.scheduling.sequences.entrance import Entrance
from penstock.scheduling.sequences.instance import MindfulInstance, WatchedInstance
from penstock.scheduling.sequences.live_sequence import LiveSequence, Slot
from penstock.scheduling.sequences.losses import Losses
from penstock.scheduling.sequences.place import MakeStrategy, Place
from penstock.scheduling.sequences.preparation import Preparation
from penstock.scheduling.sequences.strategy import Step, Strategy
from penstock.scheduling.sequences.table import SequenceTable

_TICK = 0.001
"""What the timers of event loops resolve, in seconds."""


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
        preparation: Preparation,
        instances: Sequence[MindfulInstance],
        make_strategy: MakeStrategy,
    ) -> None:
        self._policy = policy
        self._preparation = preparation
        self._loop = asyncio.get_running_loop()
        slots = [[Slot(n, at) for n in range(policy.slots)] for at in range(len(instances))]
        self._table: SequenceTable[Step] = SequenceTable(slot for own in slots for slot in own)
        self._steps: dict[Inference, Step] = {}
        self._instances: list[WatchedInstance] = []
        self._strategies: list[Strategy] = []
        self._memories: list[object | None] = [None] * len(instances)
        self._losses = Losses(policy.model)
        self._entrance = Entrance(
            policy.model, self._table, self._losses, iterative=policy.iterative
        )
        self._timer: asyncio.TimerHandle | None = None
        self._reap_at = inf
        for at, instance in enumerate(instances):
            place = Place(instance, slots[at], self._table, self, self._executed)
            watched, strategy = make_strategy(place)
            instance.on_available = partial(self._available, at)
            self._instances.append(watched)
            self._strategies.append(strategy)
            self._table.lose(at)  # it is not there before it is noticed

    # -- Scheduler ----------------------------------------------------------------------------

    def schedule(self, inference: Inference) -> None:
        self._entrance.check(inference)
        self._notice_losses()
        request, now = inference.request, self._loop.time()
        sequence = self._entrance.sequence(request, now)
        step = Step(inference, sequence, now)
        self._preparation.admit(inference, sequence)
        inference.on_left = partial(self._left, step)
        expires = now + request.timeout / 1e6 if request.timeout else inf
        self._table.push(sequence, step, now, end=request.sequence_end, expires=expires)
        self._offer([sequence])
        self._watch()

    def abandon(self, error: InferenceError) -> None:
        for sequence in list(self._table.sequences):
            self._drop(self._table.cut(sequence)[0], error)
        for strategy in self._strategies:
            strategy.abandon(error)

    async def drain(self) -> None:
        for strategy in self._strategies:
            await strategy.drain()
        if self._timer is not None:
            self._timer.cancel()

    # -- Source -------------------------------------------------------------------------------

    def prepare(self, sequence: LiveSequence[Step]) -> Inference:
        inference = sequence.waiting[0].inference
        self._preparation.prepare(inference, sequence)
        return inference

    def issue(self, sequence: LiveSequence[Step]) -> Inference:
        step = self._table.take(sequence)
        self._steps[step.inference] = step
        return step.inference

    # -- steps --------------------------------------------------------------------------------

    def _offer(self, sequences: Iterable[LiveSequence[Step]]) -> None:
        for sequence in sequences:
            if sequence.ready:
                assert sequence.slot is not None
                self._strategies[sequence.slot.instance].offer(sequence)

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

    def _left(self, step: Step) -> None:
        """The request has its answer, or nobody waits for one any more."""
        if step.sequence.taken is not step:
            dropped, given = self._table.cut(step.sequence, step)
            self._drop(dropped, _cancelled(step.sequence))
            self._offer(given)
        elif step.executed or not step.inference.compute_start:
            self._finish(step)

    def _finish(self, step: Step) -> None:
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

    def _breaks(self, step: Step) -> bool:
        """Whether the sequence has lost its thread: not executed, or its states not taken."""
        cancelled = isinstance(step.inference.stream.error, RequestCancelledError)
        return not step.executed or (cancelled and self._preparation.keeps_state)

    def _take_again(self, step: Step) -> None:
        """The model wants to go on with the request in a later batch (S-20)."""
        inference = step.inference
        inference.restarted()
        inference.request = replace(inference.request, sequence_start=False, sequence_end=False)
        step.executed, step.since = False, self._loop.time()
        self._table.put_back(step.sequence, step.since)
        self._offer([step.sequence])

    def _drop(self, steps: Iterable[Step], error: InferenceError) -> None:
        """Fail requests that are no longer in the table."""
        for step in steps:
            step.inference.on_left = None
            step.inference.fail(error)

    # -- instances that go down ---------------------------------------------------------------

    def _notice_losses(self) -> None:
        """Look who is down, who is back, and who was both since the last time."""
        for at, instance in enumerate(self._instances):
            memory = instance.memory
            if memory is not self._memories[at]:
                if self._memories[at] is not None:
                    self._lose(at)
                self._memories[at] = memory
                if memory is not None:
                    self._offer(self._table.restore(at))

    def _lose(self, at: int) -> None:
        """The instance has forgotten what it knew of its sequences."""
        name, now = self._instances[at].name, self._loop.time()
        for sequence, dropped in self._table.lose(at):
            error = self._losses.add(sequence.id, name, now)
            self._drop(dropped, error)
            taken = sequence.taken
            if taken is not None and not taken.inference.compute_start:
                taken.inference.fail(error)

    def _available(self, at: int) -> None:
        """The instance may have another batch: it is back, or may use what others had used."""
        self._notice_losses()
        if (on_available := self._instances[at].on_available) is not None:
            on_available()

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
        self._timer = self._loop.call_at(max(when, self._loop.time() + _TICK), self._reap)

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


def _cancelled(sequence: LiveSequence[Step]) -> RequestCancelledError:
    return RequestCancelledError(
        f"sequence {sequence.id} was cancelled with one of its earlier requests"
    )
