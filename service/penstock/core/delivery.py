"""From a backend's outcome to the stream that the client reads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.core.backend import Backend, Outcome
from penstock.core.errors import InferenceError, InternalError, as_inference_error
from penstock.core.pump import Pump, no_response
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream


async def execute_batch(
    backend: Backend, requests: Sequence[InferenceRequest], instance: str
) -> Sequence[Outcome]:
    """What a backend makes of a batch, one outcome a request, whatever it does wrong."""
    try:
        outcomes = list(await backend.execute(requests))
    except (Exception, asyncio.CancelledError) as error:  # a backend may raise anything
        return [as_inference_error(error)] * len(requests)
    if len(outcomes) != len(requests):
        count = f"{len(outcomes)} outcomes for {len(requests)} requests"
        return [InternalError(f"backend of '{instance}' returned {count}")] * len(requests)
    return outcomes


def deliver(outcome: Outcome, sink: ResponseStream) -> asyncio.Task[None] | None:
    """Answer one request with its outcome; the task that goes on relaying, where one is needed.

    What streams is closed at once when the reader has left meanwhile.
    """
    if isinstance(outcome, InferenceResponse):
        sink.send(outcome.as_final())
    elif isinstance(outcome, InferenceError):
        sink.fail(outcome)
    elif isinstance(outcome, ResponseStream):
        _forward(outcome, sink)
    elif hasattr(outcome, "__anext__"):
        return Pump(outcome, sink).task
    else:
        sink.fail(no_response(outcome))
    return None


def _forward(source: ResponseStream, sink: ResponseStream) -> None:
    """Move responses as they come; no task, since both ends call back."""
    if sink.ended:
        source.close()
        return
    moving = False

    def move(_: int = 0) -> None:
        nonlocal moving
        if moving:  # called back from below; the loop there goes on, which keeps the order
            return
        moving = True
        while not sink.ended and not sink.full and (ready := source.take(1)):
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
