"""Calls of a model to other models (BLS): the queue of their responses."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from penstock.core.errors import InferenceError
from penstock.core.flow_control import Credit, Window
from penstock.core.request import InferenceResponse as CoreResponse
from penstock.hosting.link.blocking import LinkClosedError
from penstock.hosting.link.messages import Kind
from penstock_backends.python.pb_utils.responses import InferenceResponse, TritonError
from penstock_backends.python.pb_utils.tensor import Tensor
from penstock_backends.python.process.model_link import ModelLink

_AHEAD = Window(responses=1024, size=64 << 20)
"""The limit of responses that nobody has taken, of a call that an event loop waits for."""


class BlsCall:
    """One request in flight to another model; its responses are queued in order.

    Those that an event loop waits for are credit as soon as they are here: it may wait for the
    first response of several calls before it reads on, and the called model for that.

    The thread that reads the link adds responses, the thread or coroutine that made the call takes
    them. Held by weak references, which mypyc's classes do not allow: this module is interpreted.
    """

    def __init__(
        self, link: ModelLink, number: int, cancel: Callable[[int], None], *, on_loop: bool = False
    ) -> None:
        self._link = link
        self._number = number
        self._cancel = cancel
        self._responses: deque[tuple[CoreResponse, bool]] = deque()
        """With each, whether its credit was returned when it came."""
        self._unread = Credit(_AHEAD)
        # Known before the first response: those that come before the loop waits count as well.
        self._on_loop = on_loop
        self._ended = False
        self._bare_end = False
        self._stopped = False
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = deque()

    # -- for the thread that reads the link ---------------------------------------------------

    def add(self, response: CoreResponse) -> None:
        """Queue a response."""
        self._ended = self._ended or response.final
        ahead = self._on_loop and self._unread.left
        self._unread.spend(response.size)
        self._responses.append((response, ahead))
        if ahead and not self._ended:
            with suppress(LinkClosedError):  # who waits for the server notices as well
                self._return_credit()
        self._notify()

    def end(self, error: InferenceError | None = None) -> None:
        """No more responses follow; an error is queued as the last one."""
        if error is not None:
            self._responses.append((CoreResponse(final=True, error=error), True))
        self._bare_end = error is None
        self._ended = True
        self._notify()

    # -- for the model: `pb_utils.runtime.ModelCall` ------------------------------------------

    def next(self) -> InferenceResponse | None:
        """The next response, waiting for it; `None` after the last."""
        self._link.wait(self._is_settled)
        return self._take_response()

    async def next_async(self) -> InferenceResponse | None:
        """As `next`, without blocking the event loop."""
        await self.arrived()
        return self._take_response()

    async def arrived(self) -> None:
        """Wait until there is a response, or the end."""
        self._on_loop = True
        loop = asyncio.get_running_loop()
        if not self._link.is_read_on(loop):  # a loop of the model's own does not read the link
            await loop.run_in_executor(None, self._link.wait, self._is_settled)
        while not self._is_settled():
            event = asyncio.Event()
            self._waiting.append((loop, event))
            if not self._is_settled():  # a response may have been added before that
                await event.wait()

    def take_bare_end(self) -> bool:
        """Whether the called model sent its final flag alone; true once, after the last."""
        bare_end, self._bare_end = self._bare_end, False
        return bare_end

    def cancel(self) -> None:
        """Notify the called model to stop; responses that it still sends can be read."""
        if not self._ended and not self._stopped:
            self._stopped = True
            self._link.send(Kind.CALL_STOP, self._number)

    def discard(self) -> None:
        """Cancel the request in the called model, and drop its responses."""
        if not self._ended:
            self._ended = True
            self._responses.clear()
            self._cancel(self._number)
            self._notify()

    def _is_settled(self) -> bool:
        return bool(self._responses) or self._ended

    def _take_response(self) -> InferenceResponse | None:
        if not self._responses:
            return None
        response, ahead = self._responses.popleft()
        self._unread.replenish(1)
        if not ahead and not self._ended:
            self._return_credit()
        return _as_response(response)

    def _return_credit(self) -> None:
        self._link.send(Kind.CALL_TAKEN, (self._number, 1))

    def _notify(self) -> None:
        while self._waiting:
            loop, event = self._waiting.popleft()
            with suppress(RuntimeError):  # the loop is closed, and its waiters with it
                loop.call_soon_threadsafe(event.set)


def _as_response(response: CoreResponse) -> InferenceResponse:
    if response.error is not None:
        error = TritonError.from_name(response.error.code, response.error.message)
        return InferenceResponse(error=error)
    tensors = [Tensor.over(name, tensor) for name, tensor in response.outputs.items()]
    return InferenceResponse(tensors, parameters=dict(response.parameters))
