"""Bugs that are planted in the server, each of a kind that has been in some server: the simulation
must find every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import patch

from penstock.core.errors import InferenceError
from penstock.core.request import InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.hosting.link.memory import SharedMemory
from penstock.hosting.parent.in_flight import CreditReturns, InFlight
from penstock.hosting.parent.process import ProcessInstance
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics
from penstock.models.serving.loaded_model import LoadedModel
from penstock.scheduling.batching.batch_queue import BatchQueue
from penstock.scheduling.direct import InstancePool
from penstock.scheduling.sequences.batcher import SequenceBatcher


def _lost_wakeup(self: ResponseStream) -> None:
    if self._responses or self._reader is None:
        _WAKE_READER(self)


def _answered_twice(
    self: InFlight, number: int, inference: Inference | None, response: InferenceResponse
) -> None:
    _PASS_ON(self, number, inference, response)
    if inference is not None and not response.final:
        inference.stream.send(response)


def _forgotten_credit(self: CreditReturns) -> None:
    while len(self._taken) > 1:
        self._taken.popitem()
    _SEND_CREDIT(self)


def _crossed_answers(self: InFlight, responses: Iterable[Any], payload: memoryview) -> None:
    listed = list(responses)
    if len(listed) > 1:
        numbers = [number for number, _ in listed]
        numbers[:2] = reversed(numbers[:2])
        listed = [(number, one) for number, (_, one) in zip(numbers, listed, strict=True)]
    _ON_RESPONSES(self, listed, payload)


def _instance_kept(self: InstancePool, instance: Any, done: Callable[[], None] | None) -> None:
    _DONE(self, instance, done)
    if self._running:
        self._busy.add(instance)


def _block_kept(self: SharedMemory) -> None:
    if self._freed:
        self._freed.popleft()
    _SEND_FREED(self)


def _lost_with_the_process(self: InFlight, error: InferenceError) -> None:
    kept, self._requests = self._requests, {}
    _LOSE(self, error)
    del kept


def _left_uncounted(self: Inference) -> None:
    if self.compute_start or self.error is None:
        _RELEASE(self)


async def _not_awaited(_: Any) -> None:
    return


def _nothing(*_: Any) -> None:
    return


_WAKE_READER = ResponseStream._wake_reader
_PASS_ON = InFlight._pass_on
_SEND_CREDIT = CreditReturns._send
_ON_RESPONSES = InFlight.on_responses
_DONE = InstancePool._done
_SEND_FREED = SharedMemory._send_freed
_LOSE = InFlight.lose
_RELEASE = Inference._release

_UNTOLD = property(lambda _: None, _nothing)

PLANTED: dict[str, list[Any]] = {
    "a reader is not woken": [patch.object(ResponseStream, "_wake_reader", _lost_wakeup)],
    "a response is sent twice": [patch.object(InFlight, "_pass_on", _answered_twice)],
    "credit is lost": [patch.object(CreditReturns, "_send", _forgotten_credit)],
    "answers are crossed": [patch.object(InFlight, "on_responses", _crossed_answers)],
    "an instance is never idle again": [patch.object(InstancePool, "_done", _instance_kept)],
    "a block of memory is kept": [patch.object(SharedMemory, "_send_freed", _block_kept)],
    "requests die with their process in silence": [
        patch.object(InFlight, "lose", _lost_with_the_process)
    ],
    "batches sent ahead are not sent again": [patch.object(InFlight, "resend", _nothing)],
    "who leaves a queue is executed all the same": [patch.object(BatchQueue, "leave", _nothing)],
    "a request is not counted off": [patch.object(Statistics, "left", _nothing)],
    "ids are kept of who leaves a queue": [patch.object(Inference, "_release", _left_uncounted)],
    "a process is not told who has left": [patch.object(InFlight, "_cancel", _nothing)],
    "idle sequences are never ended": [patch.object(SequenceBatcher, "_reap", _nothing)],
    "deadlines pass": [patch.object(Inference, "expire", _nothing)],
    "a restarted instance gets no work": [
        patch.object(ProcessInstance, "on_available", _UNTOLD, create=True)
    ],
    "unloading does not wait for answers": [
        patch.object(LoadedModel, "_quiet", _not_awaited),
        patch.object(InstancePool, "drain", _not_awaited),
    ],
}
"""What is wrong -> the patches that make it so."""
