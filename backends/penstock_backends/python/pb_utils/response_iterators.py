"""Iterators over the responses of called models (BLS), and futures of both kinds of answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock_backends.python.pb_utils import runtime
from penstock_backends.python.pb_utils.responses import InferenceResponse, TritonError

_T = TypeVar("_T")
_Wait = Callable[[runtime.ModelCall], Awaitable[_T]]


class ResponseIterator:
    """Iterator over the responses of a decoupled model (contract PY-15).

    `for` and `next` block until there is a response, `async for` and `anext` wait on the event
    loop. An iterator that is garbage-collected cancels its call and discards its responses.
    """

    def __init__(self, call: runtime.ModelCall) -> None:
        self._call = call

    def __iter__(self) -> ResponseIterator:
        return self

    def __next__(self) -> InferenceResponse:
        response = self._call.next() or self._bare_end()
        if response is None:
            raise StopIteration("Iteration is done for the responses.")
        return response

    def __aiter__(self) -> ResponseIterator:
        return self

    async def __anext__(self) -> InferenceResponse:
        response = await self._call.next_async() or self._bare_end()
        if response is None:
            raise StopAsyncIteration
        return response

    def cancel(self) -> None:
        """Notify the called model to stop.

        Responses that it still sends can be read, and its error CANCELLED, with which a request
        ends that the model has not begun.
        """
        self._call.cancel()

    def _bare_end(self) -> InferenceResponse | None:
        """The response without outputs that stands for a final flag sent alone, if it was."""
        return InferenceResponse() if self._call.take_bare_end() else None


def wait_for_response(call: runtime.ModelCall) -> InferenceResponse:
    """The response of a model that is not decoupled; blocks until it arrives."""
    return _or_error(call.next())


def response_future(call: runtime.ModelCall) -> asyncio.Future[InferenceResponse]:
    """As `wait_for_response`, for the event loop; cancelling the future cancels the call."""
    return _started(call, _await_response)


def iterator_future(call: runtime.ModelCall) -> asyncio.Future[ResponseIterator]:
    """The responses, once the first of them or the end is there: then a plain `for` can begin.

    Cancelling the future cancels the call.
    """
    return _started(call, _await_first)


def _started(call: runtime.ModelCall, wait: _Wait[_T]) -> asyncio.Future[_T]:
    task = asyncio.get_running_loop().create_task(_discarding(call, wait))
    runtime.current().keep(task)
    return task


async def _discarding(call: runtime.ModelCall, wait: _Wait[_T]) -> _T:
    try:
        return await wait(call)
    except asyncio.CancelledError:
        call.discard()
        raise


async def _await_response(call: runtime.ModelCall) -> InferenceResponse:
    return _or_error(await call.next_async())


async def _await_first(call: runtime.ModelCall) -> ResponseIterator:
    await call.arrived()
    return ResponseIterator(call)


def _or_error(response: InferenceResponse | None) -> InferenceResponse:
    if response is None:
        error = TritonError("the called model ended without a response")
        return InferenceResponse(error=error)
    return response
