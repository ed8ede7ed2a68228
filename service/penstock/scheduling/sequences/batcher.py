"""The sequence batcher: timers and instances around a `SequenceTable`, for both strategies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from penstock.core.errors import (
    InferenceError,
    RejectedError,
    RequestCancelledError,
)
from penstock.inflight.inference import Inference
from penstock.scheduling import Instance
from penstock.scheduling.first_batch import FirstBatch
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
    """Sequence settings of a model; `max_idle` is in seconds, `slots` are per instance.

    An `iterative` model reschedules a request until it has finished it, so each request may be a
    sequence of its own. A `decoupled` one may go on answering a request while it executes the
    next. `first_batch` delays the direct strategy; the oldest one has a batcher that does so.
    """

    model: str
    slots: int
    max_idle: float
    iterative: bool = False
    decoupled: bool = False
    first_batch: FirstBatch | None = None


class SequenceBatcher:
    """Assigns each sequence to a slot of one instance, and gives it the requests in order.

    A request is done when it was executed and, unless the model is decoupled, answered; then the
    next of its sequence may follow. Cancelling it before that cancels the rest of the sequence
    (S-10), since the model has missed a part.
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
        self._lost_sequences = LostSequences(policy.model)
        self._admission = SequenceAdmission(
            policy.model,
            self._table,
            self._lost_sequences,
            iterative=policy.iterative,
            id_control=preparation.id_control,
        )
        self._first_batch = policy.first_batch
        self._freed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._reap_at = inf

        def make(
            instance: StatefulInstance, slots: Sequence[Slot]
        ) -> tuple[ObservedInstance, Strategy]:
            return make_strategy(
                StrategyContext(instance, slots, self._table, self, self._executed)
            )

        self._instances = InstanceTable(policy.slots, self._table, make, self._check_instances)
        self._instances.replace(instances)

    # -- Scheduler ----------------------------------------------------------------------------

    def schedule(self, inference: Inference) -> None:
        self._admission.check(inference)
        self._check_instances()
        request, now = inference.request, self._loop.time()
        sequence = self._admission.sequence(request, now)
        step = SequenceStep(inference, sequence, now)
        self._preparation.admit(inference, sequence)
        inference.on_left = partial(self._stream_ended, step)
        expires = now + request.timeout / 1e6 if request.timeout else inf
        self._table.push(sequence, step, now, end=request.sequence_end, expires=expires)
        if self._first_batch is not None and not self._delays_first(self._first_batch):
            self._offer(list(self._table.sequences))
        else:
            self._offer([sequence])
        self._arm_timer()

    def abandon(self, error: InferenceError) -> None:
        for sequence in list(self._table.sequences):
            self._fail_steps(self._table.cut(sequence)[0], error)
        for entry in self._instances:
            entry.strategy.abandon(error)
        self._freed.set()

    async def drain(self) -> None:
        for entry in self._instances:
            await entry.strategy.drain()
        for sequence in list(self._table.sequences):
            self._table.cut(sequence)
        self._freed.set()
        if self._timer is not None:
            self._timer.cancel()

    # -- Resizable ----------------------------------------------------------------------------

    def resize(self, instances: Sequence[StatefulInstance]) -> None:
        """Open sequences on these instances from now on; removed ones finish theirs (S-23)."""
        self._instances.replace(instances)
        self._check_instances()

    # -- SequenceScheduler --------------------------------------------------------------------

    @property
    def has_sequences(self) -> bool:
        """Whether any sequence is live."""
        return not self._table.empty

    async def finished(self) -> None:
        """Wait until no sequence is live."""
        await self._wait_until(lambda: self._table.empty)

    async def vacated(self, instance: Instance) -> None:
        """Wait until a removed instance has no sequence any more."""
        entry = self._instances.find(instance)
        if entry is not None:
            await self._wait_until(partial(self._table.vacant, entry.number))
            await entry.strategy.drain()
            self._instances.remove(entry)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._freed.clear()
            await self._freed.wait()

    # -- RequestSource --------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """Whether the first batch waits for more requests, in all instances together."""
        return self._first_batch is not None

    def prepare(self, sequence: LiveSequence[SequenceStep]) -> Inference:
        inference = sequence.waiting[0].inference
        self._preparation.prepare(inference, sequence)
        return inference

    def issue(self, sequence: LiveSequence[SequenceStep]) -> Inference:
        step = self._table.take_next(sequence)
        self._steps[step.inference] = step
        return step.inference

    def _delays_first(self, first: FirstBatch) -> bool:
        if first.waits(*self._table.waiting()):
            return True
        self._first_batch = None
        return False

    # -- steps --------------------------------------------------------------------------------

    def _offer(self, sequences: Iterable[LiveSequence[SequenceStep]]) -> None:
        """Offer ready sequences to their strategies; others may have ended."""
        self._freed.set()
        for sequence in sequences:
            if sequence.ready:
                assert sequence.slot is not None
                self._instances[sequence.slot.instance].strategy.offer(sequence)

    def _executed(self, batch: Sequence[Inference]) -> None:
        """Handle an executed batch, of which the instance may have died."""
        self._check_instances()
        for inference in batch:
            step = self._steps.get(inference)
            if step is None:  # padding
                continue
            step.executed = True
            if self._policy.decoupled or inference.abandoned or inference.rescheduled:
                self._finish(step)

    def _stream_ended(self, step: SequenceStep) -> None:
        """Handle the end of a request's stream: answered, or cancelled."""
        if step.sequence.taken is not step:
            dropped, assigned = self._table.cut(step.sequence, step)
            self._fail_steps(dropped, _cancelled(step.sequence))
            self._offer(assigned)
        elif step.executed or not step.inference.compute_start:
            self._finish(step)

    def _finish(self, step: SequenceStep) -> None:
        """Finish the taken request, and offer the sequence's next one."""
        sequence, inference = step.sequence, step.inference
        del self._steps[inference]
        if inference.rescheduled and not inference.abandoned:
            self._reschedule(step)
            return
        inference.on_left = None
        if self._policy.iterative:
            self._table.end(sequence)
        if self._is_broken(step):
            self._fail_steps(self._table.cut(sequence)[0], _cancelled(sequence))
        self._offer([sequence, *self._table.done(sequence, self._loop.time())])

    def _is_broken(self, step: SequenceStep) -> bool:
        """Whether the sequence cannot go on: a request was not executed, or its states are lost."""
        cancelled = isinstance(step.inference.stream.error, RequestCancelledError)
        return not step.executed or (cancelled and self._preparation.keeps_state)

    def _reschedule(self, step: SequenceStep) -> None:
        """Queue the request again, for a later batch, as its model has asked (S-20)."""
        inference = step.inference
        inference.restarted()
        inference.request = inference.request._replace(sequence_start=False, sequence_end=False)
        step.executed, step.since = False, self._loop.time()
        self._table.put_back(step.sequence, step.since)
        self._offer([step.sequence])

    def _fail_steps(self, steps: Iterable[SequenceStep], error: InferenceError) -> None:
        """Fail requests that were removed from the table."""
        for step in steps:
            step.inference.on_left = None
            step.inference.fail(error)

    # -- instances that go down ---------------------------------------------------------------

    def _check_instances(self) -> None:
        """Detect instances that went down, came back or restarted since the last check."""
        for entry, before in self._instances.changed():
            if before is not None:
                self._lose(entry)
            if entry.memory is not None and not entry.leaving:
                self._offer(self._table.restore(entry.number))

    def _lose(self, entry: InstanceEntry) -> None:
        """End the sequences of an instance, whose state is lost."""
        now = self._loop.time()
        for sequence, dropped in self._table.lose(entry.number):
            error = self._lost_sequences.add(sequence.id, entry.name, now)
            self._fail_steps(dropped, error)
            taken = sequence.taken
            if taken is not None and not taken.inference.compute_start:
                taken.inference.fail(error)
        self._freed.set()

    # -- time ---------------------------------------------------------------------------------

    def _arm_timer(self) -> None:
        """Arm the timer for the next idle timeout, or timeout of the backlog."""
        idle = self._table.untouched_since() + self._policy.max_idle
        when = min(idle, self._table.next_expiry())
        if when >= self._reap_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._reap_at = when
        self._timer = self._loop.call_at(max(when, self._loop.time() + TICK), self._reap)

    def _reap(self) -> None:
        """End idle sequences (S-09), and those that timed out in the backlog (S-08)."""
        self._timer, self._reap_at = None, inf
        self._check_instances()
        now = self._loop.time()
        expired = RejectedError("timeout of the corresponding sequence has been expired")
        self._fail_steps(self._table.expired(now), expired)
        before = now - self._policy.max_idle
        self._lost_sequences.expire(before)
        self._offer(self._table.reap(before, now))
        self._arm_timer()


def _cancelled(sequence: LiveSequence[SequenceStep]) -> RequestCancelledError:
    return RequestCancelledError(
        f"sequence {sequence.id} was cancelled with one of its earlier requests"
    )
