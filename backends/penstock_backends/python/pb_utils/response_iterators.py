"""Responses of other models, as a model takes them: one, or one after the other (BLS)."""

from __future__ import annotations

import asyncio

from penstock_backends.python.pb_utils import runtime
from penstock_backends.python.pb_utils.responses import InferenceResponse, TritonError


class ResponseIterator:
    """Responses of a decoupled model, as they come (contract PY-15)."""

    def __init__(self, call: runtime.Call) -> None:
        self._call = call

    def __iter__(self) -> ResponseIterator:
        return self

    def __next__(self) -> InferenceResponse:
        response = self._call.next() or _bare_end(self._call)
        if response is None:
            raise StopIteration("Iteration is done for the responses.")
        return response

    def cancel(self) -> None:
        """Want no more; the called model learns of it."""
        self._call.cancel()


class AsyncResponseIterator:
    """As `ResponseIterator`, for `async for`; a plain `for` waits as that one does."""

    def __init__(self, call: runtime.Call) -> None:
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
        """Want no more; the called model learns of it."""
        self._call.cancel()


def _bare_end(call: runtime.Call) -> InferenceResponse | None:
    """The response without outputs that a final flag sent alone is; `None` otherwise."""
    return InferenceResponse() if call.take_bare_end() else None


def only(call: runtime.Call) -> InferenceResponse:
    """The response of a model that gives one, waiting for it."""
    return _some(call.next())


def begin(call: runtime.Call) -> asyncio.Future[InferenceResponse]:
    """As `only`, while other coroutines of the model go on."""
    task = asyncio.get_running_loop().create_task(_only(call))
    runtime.current().keep(task)
    return task


async def _only(call: runtime.Call) -> InferenceResponse:
    try:
        return _some(await call.next_async())
    except asyncio.CancelledError:
        call.cancel()
        raise


def _some(response: InferenceResponse | None) -> InferenceResponse:
    if response is None:
        error = TritonError("the called model ended without a response")
        return InferenceResponse(error=error)
    return response
