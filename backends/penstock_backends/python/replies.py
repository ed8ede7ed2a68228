"""Requests of the server that the model has not answered yet."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.core.errors import error_from_code
from penstock.core.request import InferenceResponse as CoreResponse
from penstock.core.tensor import Buffer
from penstock.core.tensor import Tensor as CoreTensor
from penstock.hosting.frames import encode
from penstock.hosting.messages import WINDOW, Kind
from penstock_backends.python.values import InferenceResponse, TritonModelException

if TYPE_CHECKING:
    from penstock_backends.python.stub import Stub


def printable(text: str) -> str:
    """The text without lone surrogates, which names of files may bring and no protocol carries."""
    return text.encode("utf-8", "backslashreplace").decode()


class PendingReply:
    """One request: what may still be sent for it, and whether anybody wants it.

    Any thread of the model may send; the final flag closes the reply, once.
    """

    __slots__ = (
        "_changed",
        "_lock",
        "_on_cancel",
        "_stub",
        "_taken",
        "cancelled",
        "closed",
        "decoupled",
        "number",
        "outputs",
        "sent",
    )

    def __init__(self, stub: Stub, number: int, outputs: Sequence[str], *, decoupled: bool) -> None:
        self.number = number
        self.outputs = outputs
        self.decoupled = decoupled
        self.closed = False
        self.cancelled = False
        self.sent = 0
        self._taken = 0
        self._stub = stub
        self._lock = threading.Lock()
        self._changed: Callable[[], object] | None = None
        self._on_cancel: Callable[[], object] | None = None

    def send(self, response: InferenceResponse | None, *, final: bool) -> None:
        """Send a response, the final flag, or both; all but the last wait for room."""
        if not final:
            self._wait_for_room()
        with self._lock:  # until it has left, so that nothing of another thread gets before it
            if self.closed:
                raise TritonModelException(
                    "Unable to send response. Response sender has been closed."
                )
            parts = self._parts(response, final=final)  # may fail, and then nothing was sent
            self.closed = final
            self.sent += response is not None
            self._stub.send_parts(parts)
        if final:
            self._stub.forget(self.number)

    def _parts(self, response: InferenceResponse | None, *, final: bool) -> list[Buffer]:
        if self.cancelled:
            return []  # nobody listens; the model may not have noticed yet
        if response is None:
            return encode(Kind.END, self.number)
        return self._stub.encode_response(self.number, self.core(response, final=final))

    def core(self, response: InferenceResponse, *, final: bool) -> CoreResponse:
        """The response as the server sees it, with the outputs that were asked for."""
        error = response.error()
        if error is not None:
            message = printable(error.message())
            return CoreResponse(final=final, error=error_from_code(error.code_name, message))
        tensors: dict[str, CoreTensor] = {}
        for tensor in response.output_tensors():
            if tensor.name() in self.outputs:
                tensors[tensor.name()] = tensor.core
        return CoreResponse(tensors, response.core_parameters, final)

    def is_cancelled(self) -> bool:
        """Whether the client has left; looks for word of it."""
        if not self.cancelled:
            self._stub.look()
        return self.cancelled

    def taken(self, count: int) -> None:
        """The client has taken responses."""
        self._taken += count
        self._notify()

    def cancel(self) -> None:
        """The client has left."""
        self.cancelled = True
        if self._on_cancel is not None:
            self._on_cancel()
        self._notify()

    # -- for code on an event loop, which the link may be read from another thread than ----------

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Call `callback` on the event loop when the client leaves, at once if it has left."""
        loop = asyncio.get_running_loop()
        self._on_cancel = lambda: loop.call_soon_threadsafe(callback)
        if self.cancelled:
            self._on_cancel()

    async def room(self) -> None:
        """Wait until one more response may be sent."""
        loop = asyncio.get_running_loop()
        while not self._may_send():
            event = asyncio.Event()
            self._changed = lambda: loop.call_soon_threadsafe(event.set)  # noqa: B023
            if not self._may_send():  # another thread may have heard so before it knew whom to tell
                await event.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed()

    def _wait_for_room(self) -> None:
        if not self._may_send():
            self._stub.wait(self._may_send)

    def _may_send(self) -> bool:
        return self.sent - self._taken < WINDOW or self.cancelled
