"""Requests of the server that the model has not answered yet."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.core.request import InferenceResponse as CoreResponse
from penstock.core.tensor import Tensor as CoreTensor
from penstock.hosting.messages import WINDOW, Kind
from penstock_backends.python.values import InferenceResponse, TritonModelException

if TYPE_CHECKING:
    from penstock_backends.python.stub import Stub


class PendingReply:
    """One request: what may still be sent for it, and whether anybody wants it.

    Any thread of the model may send; the final flag closes the reply, once.
    """

    __slots__ = (
        "_lock",
        "_room",
        "_stub",
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
        self._room = WINDOW
        self._stub = stub
        self._lock = threading.Lock()

    def send(self, response: InferenceResponse | None, *, final: bool) -> None:
        """Send a response, the final flag, or both; waits for room."""
        if response is not None:
            self._wait_for_room()
        with self._lock:
            if self.closed:
                raise TritonModelException(
                    "Unable to send response. Response sender has been closed."
                )
            self.closed = final
            self.sent += response is not None
            self._room -= response is not None
        if final:
            self._stub.forget(self.number)
        if self.cancelled:
            return  # nobody listens; the model may not have noticed yet
        if response is None:
            self._stub.send(Kind.END, self.number)
        else:
            self._stub.respond(self.number, self.core(response, final=final))

    def core(self, response: InferenceResponse, *, final: bool) -> CoreResponse:
        """The response as the server sees it, with the outputs that were asked for."""
        error = response.error()
        if error is not None:
            return CoreResponse(final=final, error=error.core)
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
        self._room += count

    def _wait_for_room(self) -> None:
        if self._room <= 0 and not self.cancelled:
            self._stub.wait(lambda: self._room > 0 or self.cancelled)
