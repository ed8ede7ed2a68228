"""The dynamic batcher: timers and instances around a `BatchQueue`."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

from penstock.core.config import DynamicBatching, ModelConfig
from penstock.core.errors import InferenceError, RejectedError, queue_full
from penstock.core.request import InferenceRequest
from penstock.inflight.inference import Inference
from penstock.scheduling import Instance
from penstock.scheduling.batching.batch_queue import BatchQueue, Entry
from penstock.scheduling.batching.forming import (
    BatchPolicy,
    LengthBatching,
    Signature,
    length,
    signature_for,
)
from penstock.scheduling.batching.gathering import Gathering, gather_share
from penstock.scheduling.batching.priority import PriorityLevels
from penstock.scheduling.direct import InstancePool
from penstock.scheduling.first_batch import FirstBatch
from penstock.scheduling.timing import LoopClock, ScheduledCall

logger = logging.getLogger(__name__)


class DynamicBatcher:
    """Batches the requests of one model for all its instances.

    It dispatches once per turn of the event loop, so that requests of one socket read are batched
    together even without a queue delay; and only when an instance is idle, so that batches grow
    while all are busy.
    """

    def __init__(self, settings: BatcherSettings, instances: Sequence[Instance]) -> None:
        self._queue: BatchQueue[Inference] = BatchQueue(settings.policy, settings.levels)
        self._signature = settings.signature
        self._counts_lengths = settings.policy.max_elements > 0 or bool(settings.policy.buckets)
        self._order = ResponseOrder() if settings.preserve_ordering else None
        self._gathering = Gathering(settings.gather) if settings.gather else None
        self._pool = InstancePool(instances, self._dispatch)
        self._loop = asyncio.get_running_loop()
        self._clock = LoopClock(self._loop)
        self.forming = False
        self._wake: ScheduledCall | None = None
        self._wake_at = inf
        self._first_batch = FirstBatch.from_environment()

    def schedule(self, inference: Inference) -> None:
        entry = self._push(inference)
        if entry is None:
            raise RejectedError(queue_full(inference.request.id))
        inference.on_end, inference.former = partial(self._queue.leave, entry), self
        self._wake_by(-inf)

    def hand_over_order(self) -> ResponseOrder | None:
        """The order of responses, if there is one: whoever schedules in front keeps it instead."""
        order, self._order = self._order, None
        return order

    def abandon(self, error: InferenceError) -> None:
        for inference in self._queue.clear():
            inference.fail(error)

    async def drain(self) -> None:
        await self._pool.drain()

    def resize(self, instances: Sequence[Instance]) -> None:
        self._pool.replace(instances)

    def _push(self, inference: Inference) -> Entry[Inference] | None:
        request = inference.request
        return self._queue.push(
            inference,
            inference.rows,
            self._signature(request),
            self._clock.now(),
            length=length(request) if self._counts_lengths else 0,
            priority=request.priority,
            timeout=request.timeout / 1e6,
        )

    def _wake_by(self, when: float) -> None:
        """Dispatch at `when` on the clock, or earlier if that is scheduled already."""
        if when >= self._wake_at:
            return
        if self._wake is not None:
            self._wake.cancel()
        self._wake_at = when
        if when == -inf:
            self._wake = self._loop.call_soon(self._woken)
        else:
            self._wake = self._clock.call_at(when, self._woken)

    def _woken(self) -> None:
        self._wake, self._wake_at = None, inf
        self._dispatch()

    def _dispatch(self) -> None:
        now = self._clock.now()
        for inference in self._queue.expire(now):
            inference.fail(RejectedError("Request timeout expired"))
        self._wake_by(min(self._run_batches(now), self._queue.next_expiry()))

    def _run_batches(self, now: float) -> float:
        """Give batches to idle instances; returns when the next is due, `inf` if none is idle."""
        self.forming = False
        if self._first_batch is not None and self._delays_first(self._first_batch):
            return inf
        while len(self._queue) and (instance := self._pool.idle()) is not None:
            due = self._due(now)
            if due > now:
                self.forming = True
                return due
            self._run(instance, now)
        return inf

    def _due(self, now: float) -> float:
        """Time of the next dispatch of a batch."""
        due = self._queue.due()
        if self._gathering is None or due == -inf:  # it is complete
            return due
        return max(due, self._gathering.due(now, len(self._queue)))

    def _run(self, instance: Instance, now: float) -> None:
        batch = self._pop_batch(now)
        done = None
        if self._gathering is not None:
            done = partial(self._executed, self._gathering, now, len(batch))
        self._pool.run(instance, batch, done)

    def _executed(self, gathering: Gathering, begun: float, requests: int) -> None:
        gathering.executed(begun, self._clock.now(), requests, len(self._queue))
        # The tasks of readers were woken before: by then they have written their answers.
        self._loop.call_soon(self._answered, gathering)

    def _answered(self, gathering: Gathering) -> None:
        gathering.answered(self._clock.now())

    def _pop_batch(self, now: float) -> list[Inference]:
        batch = self._queue.pop(now)
        if self._order is not None:
            self._order.add(batch)
        else:
            for inference in batch:
                inference.on_end = None
        if logger.isEnabledFor(logging.DEBUG):
            model, rows = batch[0].request.model_name, sum(i.rows for i in batch)
            logger.debug(
                "model '%s': batch of %d requests, %d rows; %d wait",
                model,
                len(batch),
                rows,
                len(self._queue),
            )
        return batch

    def _delays_first(self, first: FirstBatch) -> bool:
        if len(self._queue) < first.queued:
            return True
        self._first_batch = None
        return False


class ResponseOrder:
    """Holds responses back until their request is the oldest that was executed."""

    def __init__(self) -> None:
        self._queue: deque[Inference] = deque()
        self._loop = asyncio.get_running_loop()

    def add(self, batch: Iterable[Inference]) -> None:
        """Append the requests of a batch, in this order."""
        for inference in batch:
            if self._queue:
                inference.stream.hold_back()
            inference.on_end = self._ended
            self._queue.append(inference)

    def append(self, inference: Inference) -> None:
        """Append a request that is still to be scheduled, by whoever, or is answered already."""
        if self._queue:
            inference.stream.hold_back()
        inference.on_left = self._ended
        self._queue.append(inference)

    def _ended(self) -> None:
        # Not at once: the reader of the stream that just ended is woken first.
        self._loop.call_soon(self._advance)

    def _advance(self) -> None:
        while self._queue and self._queue[0].stream.ended:
            self._queue.popleft()
            if self._queue:
                self._queue[0].stream.release_held()


def signature(request: InferenceRequest) -> Hashable:
    """The default signature, without a model configuration: names and shapes of all inputs."""
    return frozenset((name, tensor.shape[1:]) for name, tensor in request.inputs.items())


@dataclass(frozen=True, slots=True)
class BatcherSettings:
    """Batch sizes and delay, queue policies, compatibility of requests, and response ordering.

    `gather` is the delay of `Gathering`, as a share of the last execution's time.
    """

    policy: BatchPolicy
    levels: PriorityLevels = field(default_factory=PriorityLevels)
    signature: Signature = signature
    preserve_ordering: bool = False
    gather: float = 0.0

    @classmethod
    def from_config(cls, config: ModelConfig) -> BatcherSettings:
        """Convert a complete configuration; raises `ConfigError` for invalid parameters."""
        batching = config.dynamic_batching or DynamicBatching()
        lengths = LengthBatching.from_config(config)
        policy = BatchPolicy(
            max_batch_size=config.max_batch_size,
            preferred=frozenset(batching.preferred_batch_size),
            max_queue_delay=batching.max_queue_delay,
            max_elements=lengths.max_elements,
            padded=lengths.padded,
            buckets=lengths.buckets,
        )
        levels, ordered = PriorityLevels.from_config(batching), batching.preserve_ordering
        return cls(policy, levels, signature_for(config), ordered, gather_share(config))
