"""Sequence batching: the waiting around `SequenceTable`, for both strategies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from penstock.core.errors import (
    InferenceError,
    InvalidRequestError,
    RejectedError,
    RequestCancelledError,
)
from penstock.core.inference import Inference
from penstock.core.request import InferenceRequest
from penstock.scheduling.sequences.controls import Controls
from penstock.scheduling.sequences.instance import Executed, MindfulInstance, WatchedInstance
from penstock.scheduling.sequences.losses import Losses
from penstock.scheduling.sequences.states import States
from penstock.scheduling.sequences.strategy import Source, Step, Strategy
from penstock.scheduling.sequences.table import LiveSequence, SequenceTable, Slot

logger = logging.getLogger(__name__)

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


@dataclass(frozen=True, slots=True)
class Place:
    """What the strategy of one instance is made of."""

    instance: MindfulInstance
    slots: Sequence[Slot]
    table: SequenceTable[Step]
    source: Source
    executed: Executed


MakeStrategy = Callable[[Place], tuple[WatchedInstance, Strategy]]


class SequenceBatcher:
    """Gives each sequence a slot of one instance, and its requests to that one in order.

    A request is done when it was executed and, unless the model is decoupled, answered; then the
    next of its sequence may follow. Whoever leaves before that takes the rest of the sequence
    along (S-10): what a model has missed once cannot be made good.
    """

    def __init__(
        self,
        policy: SequencePolicy,
        controls: Controls,
        states: States,
        instances: Sequence[MindfulInstance],
        make_strategy: MakeStrategy,
    ) -> None:
        self._policy = policy
        self._controls = controls
        self._states = states
        self._loop = asyncio.get_running_loop()
        slots = [[Slot(n, at) for n in range(policy.slots)] for at in range(len(instances))]
        self._table: SequenceTable[Step] = SequenceTable(slot for own in slots for slot in own)
        self._steps: dict[Inference, Step] = {}
        self._instances: list[WatchedInstance] = []
        self._strategies: list[Strategy] = []
        self._memories: list[object | None] = [None] * len(instances)
        self._losses = Losses(policy.model)
        self._latest_id = 0
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
        self._check(inference)
        request, now = inference.request, self._loop.time()
        sequence = self._sequence(request, now)
        step = Step(inference, sequence, now)
        if self._states:
            keep, stream = sequence.state.__setitem__, inference.stream
            stream.transform = self._states.taking(request, keep, stream.transform)
            inference.request = self._states.asking(request)
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
        request = inference.request
        if self._states and (request.sequence_start or not sequence.state):
            sequence.state.update(self._states.initial())
        inputs = {**request.inputs, **self._controls.of(request), **sequence.state}
        inference.request = replace(request, inputs=inputs)
        return inference

    def issue(self, sequence: LiveSequence[Step]) -> Inference:
        step = self._table.take(sequence)
        self._steps[step.inference] = step
        return step.inference

    # -- admission ----------------------------------------------------------------------------

    def _check(self, inference: Inference) -> None:
        """Refuse what is in no sequence (S-02, S-03); iterative models get one made up."""
        request, model = inference.request, self._policy.model
        if inference.rows > 1:
            raise InvalidRequestError(
                f"inference request to model '{model}' must specify batch-size 1 due to"
                " requirements of sequence batcher"
            )
        if request.correlation_id:
            return
        if not self._policy.iterative:
            raise InvalidRequestError(
                f"inference request to model '{model}' must specify a non-zero or non-empty"
                " correlation ID"
            )
        inference.request = replace(
            request, correlation_id=self._own_id(), sequence_start=True, sequence_end=False
        )

    def _own_id(self) -> int:
        """An id that no live sequence has."""
        self._latest_id += 1
        while self._table.find(self._latest_id) is not None:
            self._latest_id += 1
        return self._latest_id

    def _sequence(self, request: InferenceRequest, now: float) -> LiveSequence[Step]:
        """The sequence that a request belongs to; begins it if the request says so (S-04)."""
        self._notice_losses()
        id = request.correlation_id
        sequence = self._table.find(id)
        if sequence is None:
            if not request.sequence_start:
                raise self._losses.of(id) or self._not_started(id)
            self._losses.forget(id)
            return self._table.open(id, now)
        if request.sequence_start:
            logger.warning(
                "sequence %s for model '%s' has a conflict. The previous sequence did not end"
                " before this sequence start. Previous sequence will be terminated early.",
                id,
                self._policy.model,
            )
        return sequence

    def _not_started(self, id: int | str) -> InvalidRequestError:
        return InvalidRequestError(
            f"inference request for sequence {id} to model '{self._policy.model}' must specify"
            " the START flag on the first request of the sequence"
        )

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
        return not step.executed or (cancelled and bool(self._states))

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
