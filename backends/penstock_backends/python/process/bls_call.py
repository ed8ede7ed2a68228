"""Requests that the model has made to other models, and their responses (BLS)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from penstock.core.errors import InferenceError
from penstock.core.request import InferenceResponse as CoreResponse
from penstock.hosting.link.messages import Kind
from penstock_backends.python.pb_utils.responses import InferenceResponse, TritonError
from penstock_backends.python.pb_utils.tensor import Tensor

if TYPE_CHECKING:
    from penstock_backends.python.process.model_link import Stub


class PendingCall:
    """One request on its way through the server; its responses come in order.

    The reading thread adds to it, the thread or coroutine that asked takes from it.
    """

    def __init__(self, stub: Stub, number: int) -> None:
        self._stub = stub
        self._number = number
        self._responses: deque[CoreResponse] = deque()
        self._ended = False
        self._bare_end = False
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    # -- what the server says -----------------------------------------------------------------

    def add(self, response: CoreResponse) -> None:
        """A response has come."""
        self._responses.append(response)
        self._ended = self._ended or response.final
        self._notify()

    def end(self, error: InferenceError | None = None) -> None:
        """No more will come; `error` is the last word."""
        if error is not None:
            self._responses.append(CoreResponse(final=True, error=error))
        self._bare_end = error is None
        self._ended = True
        self._notify()

    # -- what the model does ------------------------------------------------------------------

    def next(self) -> InferenceResponse | None:
        """The next response, waiting for it; `None` after the last."""
        self._stub.wait(self._settled)
        return self._take()

    async def next_async(self) -> InferenceResponse | None:
        """As `next`, without blocking the event loop."""
        loop = asyncio.get_running_loop()
        if not self._stub.watched_by(loop):  # a loop of the model's own does not see the link
            await loop.run_in_executor(None, self._stub.wait, self._settled)
        while not self._settled():
            event = asyncio.Event()
            self._waiting = loop, event
            if not self._settled():  # another thread may have added before it knew whom to tell
                await event.wait()
        return self._take()

    def take_bare_end(self) -> bool:
        """Whether the called model sent its final flag alone; told once."""
        told, self._bare_end = self._bare_end, False
        return told

    def cancel(self) -> None:
        """Want no more; the called model learns of it."""
        if not self._ended:
            self._ended = True
            self._responses.clear()
            self._stub.runtime.cancel_call(self._number)
            self._notify()

    def _settled(self) -> bool:
        return bool(self._responses) or self._ended

    def _take(self) -> InferenceResponse | None:
        if not self._responses:
            return None
        response = self._responses.popleft()
        if not self._ended:
            self._stub.send(Kind.CALL_TAKEN, (self._number, 1))
        return _as_response(response)

    def _notify(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            loop, event = waiting
            loop.call_soon_threadsafe(event.set)


def _as_response(response: CoreResponse) -> InferenceResponse:
    if response.error is not None:
        error = TritonError.from_name(response.error.code, response.error.message)
        return InferenceResponse(error=error)
    tensors = [Tensor.over(name, tensor) for name, tensor in response.outputs.items()]
    return InferenceResponse(tensors, parameters=dict(response.parameters))
