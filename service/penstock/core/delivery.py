"""Delivery of a backend's outcomes to the response streams that clients read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from penstock.core.backend import Backend, Outcome
from penstock.core.errors import InferenceError, InternalError, as_inference_error
from penstock.core.log.log_throttle import log_fault
from penstock.core.pump import Pump, no_response
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream

logger = logging.getLogger(__name__)


async def execute_batch(
    backend: Backend, requests: Sequence[InferenceRequest], instance: str
) -> Sequence[Outcome]:
    """Execute a batch; one outcome per request, errors for all if the backend misbehaves."""
    try:
        outcomes = list(await backend.execute(requests))
    except (Exception, asyncio.CancelledError) as error:  # a backend may raise anything
        if not isinstance(error, (InferenceError, asyncio.CancelledError)):
            log_fault(logger, error, "the backend of '%s' raised an error of its code", instance)
        return [as_inference_error(error)] * len(requests)
    if len(outcomes) != len(requests):
        count = f"{len(outcomes)} outcomes for {len(requests)} requests"
        return [InternalError(f"backend of '{instance}' returned {count}")] * len(requests)
    return outcomes


def deliver(outcome: Outcome, sink: ResponseStream) -> asyncio.Task[None] | None:
    """Answer one request with its outcome; returns the relaying task if the outcome needs one.

    A streaming outcome is closed at once if the reader has left already.
    """
    if isinstance(outcome, InferenceResponse):
        sink.send(outcome.as_final())
    elif isinstance(outcome, InferenceError):
        sink.fail(outcome)
    elif isinstance(outcome, ResponseStream):
        _forward(outcome, sink)
    elif callable(outcome):
        _push(outcome, sink)
    elif hasattr(outcome, "__anext__"):
        return Pump(outcome, sink).task
    else:
        sink.fail(no_response(outcome))
    return None


def _push(begin: Callable[[ResponseStream], None], sink: ResponseStream) -> None:
    if sink.ended:  # the reader has left already
        return
    try:
        begin(sink)
    except Exception as error:  # a backend may raise anything
        sink.fail(as_inference_error(error))


def _forward(source: ResponseStream, sink: ResponseStream) -> None:
    """Relay responses from stream to stream, by callbacks of both and without a task."""
    if sink.ended:
        source.close()
        return
    moving = False

    def move(_: int = 0) -> None:
        nonlocal moving
        if moving:  # re-entered from the loop below, which goes on; this keeps the order
            return
        moving = True
        while not sink.ended and not sink.full and (ready := source.take_ready(1)):
            sink.send(ready[0])
        moving = False
        if source.exhausted:
            _end(sink, source.error)

    sink.connect(source.close, move)
    source.watch(move)


def _end(sink: ResponseStream, error: InferenceError | None) -> None:
    if error is None:
        sink.end()
    else:
        sink.fail(error)
