"""Iterators over the responses of called models (BLS), and futures of a single response."""

from __future__ import annotations

import asyncio

from penstock_backends.python.pb_utils import runtime
from penstock_backends.python.pb_utils.responses import InferenceResponse, TritonError


class ResponseIterator:
    """Iterator over the responses of a decoupled model (contract PY-15); `next` blocks."""

    def __init__(self, call: runtime.ModelCall) -> None:
        self._call = call

    def __iter__(self) -> ResponseIterator:
        return self

    def __next__(self) -> InferenceResponse:
        response = self._call.next() or _bare_end(self._call)
        if response is None:
            raise StopIteration("Iteration is done for the responses.")
        return response

    def cancel(self) -> None:
        """Discard further responses, and cancel the request in the called model."""
        self._call.cancel()


class AsyncResponseIterator:
    """As `ResponseIterator`, for `async for`; in a plain `for` it blocks."""

    def __init__(self, call: runtime.ModelCall) -> None:
        self._call = call

    def __aiter__(self) -> AsyncResponseIterator:
        return self

    async def __anext__(self) -> InferenceResponse:
        response = await self._call.next_async() or _bare_end(self._call)
        if response is None:
            raise StopAsyncIteration
        return response

    def __iter__(self) -> ResponseIterator:
        return ResponseIterator(self._call)

    def cancel(self) -> None:
        """Discard further responses, and cancel the request in the called model."""
        self._call.cancel()


def _bare_end(call: runtime.ModelCall) -> InferenceResponse | None:
    """The response without outputs that stands for a final flag sent alone; `None` otherwise."""
    return InferenceResponse() if call.take_bare_end() else None


def wait_for_response(call: runtime.ModelCall) -> InferenceResponse:
    """The response of a model that is not decoupled; blocks until it arrives."""
    return _or_error(call.next())


def response_future(call: runtime.ModelCall) -> asyncio.Future[InferenceResponse]:
    """As `wait_for_response`, for the event loop; cancelling the future cancels the call."""
    task = asyncio.get_running_loop().create_task(_await_response(call))
    runtime.current().keep(task)
    return task


async def _await_response(call: runtime.ModelCall) -> InferenceResponse:
    try:
        return _or_error(await call.next_async())
    except asyncio.CancelledError:
        call.cancel()
        raise


def _or_error(response: InferenceResponse | None) -> InferenceResponse:
    if response is None:
        error = TritonError("the called model ended without a response")
        return InferenceResponse(error=error)
    return response
