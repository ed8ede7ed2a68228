"""From a backend's outcome to the stream that the client reads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

from penstock.core.backend import Backend, Outcome
from penstock.core.errors import InferenceError, InternalError, RequestCancelledError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream

logger = logging.getLogger(__name__)


def as_inference_error(error: BaseException) -> InferenceError:
    """`error` as a client may see it: what foreign code raised becomes INTERNAL."""
    if isinstance(error, InferenceError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return RequestCancelledError("request was cancelled")
    text = str(error)
    return InternalError(f"{type(error).__name__}: {text}" if text else type(error).__name__)


async def outcomes_of(
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
        return _Pump(outcome, sink).task
    else:
        sink.fail(_no_response(outcome))
    return None


def _no_response(answer: object) -> InternalError:
    return InternalError(f"backend answered with {type(answer).__name__}, not a response")


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


class _Pump:
    """Moves what comes from an iterator, in a task of its own."""

    def __init__(self, source: AsyncIterator[InferenceResponse], sink: ResponseStream) -> None:
        self._source = source
        self._sink = sink
        self._begun = False
        self.task = asyncio.get_running_loop().create_task(self._run())
        sink.connect(self._cancel)

    def _cancel(self) -> None:
        # Work that has not begun sees for itself that the reader left, and closes the source;
        # cancelled, it would never begin.
        if self._begun:
            self.task.cancel()

    async def _run(self) -> None:
        self._begun = True
        sink, source = self._sink, self._source
        try:
            while not sink.ended:
                sink.send(_checked(await anext(source)))
                await sink.room()
        except StopAsyncIteration:
            sink.end()
        except asyncio.CancelledError:
            sink.fail(RequestCancelledError("request was cancelled"))
            raise
        except Exception as error:  # a backend may raise anything
            sink.fail(as_inference_error(error))
        finally:
            await _close(source)


def _checked(response: InferenceResponse) -> InferenceResponse:
    if not isinstance(response, InferenceResponse):  # the type is a promise of foreign code
        raise _no_response(response)
    return response


async def _close(source: AsyncIterator[InferenceResponse]) -> None:
    close = getattr(source, "aclose", None)
    if close is None:
        return
    try:
        await close()
    except Exception:  # the client has its answer; what is left is the backend's own trouble
        logger.exception("closing a response generator failed")
