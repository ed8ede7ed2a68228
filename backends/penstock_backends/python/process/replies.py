"""Requests of the server that the model has not answered yet."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.core.errors import InternalError, error_from_code
from penstock.core.flow_control import WINDOW, Credit, Window
from penstock.core.request import InferenceResponse as CoreResponse
from penstock.core.tensor import Tensor as CoreTensor
from penstock.hosting.link.messages import Kind
from penstock.hosting.link.tensor_codec import NO_PLACES, Places
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.responses import InferenceResponse

_MOST_HELD = 1024
"""Responses of one request that a model's event loop may send ahead of a slow reader."""


def printable(text: str) -> str:
    """The text without lone surrogates, which names of files may bring and no protocol carries."""
    return text.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class Terms:
    """How the requests of a model are answered.

    `outputs` are what a request gets that names none. A model of `sequences` sees every request
    of them, also when its client has left; an `iterative` one may have a request rescheduled.
    `window` is how far responses go ahead of their reader.
    """

    outputs: Sequence[str] = ()
    decoupled: bool = False
    sequences: bool = False
    iterative: bool = False
    window: Window = WINDOW

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> Terms:
        """From what the server says of the model when it begins."""
        config = header["config"]
        policy = config.get("model_transaction_policy") or {}
        sequences = config.get("sequence_batching")
        return cls(
            outputs=tuple(output["name"] for output in config.get("output", ())),
            decoupled=bool(policy.get("decoupled")),
            sequences=sequences is not None,
            iterative=bool(sequences and sequences.get("iterative_sequence")),
            window=Window(*header["window"]),
        )


class Way(Protocol):
    """The way to the server, as far as a reply needs it: the stub."""

    def send(self, kind: int, header: Any) -> None: ...

    def respond(self, number: int, response: CoreResponse, places: Places) -> None: ...

    def forget(self, number: int) -> None:
        """All is said about this request."""

    def look(self) -> None:
        """Handle what the server has said meanwhile."""

    def wait(self, done: Callable[[], bool]) -> None:
        """Block until `done()`."""

    def on_its_loop(self) -> bool:
        """Whether to wait here would block everybody."""


class PendingReply:
    """One request: what may still be sent for it, and whether anybody wants it.

    Any thread of the model may send; the final flag closes the reply, once.
    """

    __slots__ = (
        "_changed",
        "_credit",
        "_held",
        "_lock",
        "_on_cancel",
        "_way",
        "cancelled",
        "closed",
        "decoupled",
        "iterative",
        "number",
        "outputs",
        "places",
        "sent",
    )

    def __init__(
        self,
        way: Way,
        number: int,
        outputs: Sequence[str],
        terms: Terms,
        places: Places = NO_PLACES,
    ) -> None:
        self.number = number
        self.places = places
        self.outputs = outputs
        self.decoupled = terms.decoupled
        self.iterative = terms.iterative
        self.closed = False
        self.cancelled = False
        self.sent = 0
        self._credit = Credit(terms.window)
        self._held: deque[CoreResponse | None] = deque()
        self._way = way
        self._lock = threading.Lock()
        self._changed: Callable[[], object] | None = None
        self._on_cancel: Callable[[], object] | None = None

    def send(self, response: InferenceResponse | None, *, final: bool) -> None:
        """Send a response, the final flag, or both; all but the last wait for room.

        On the event loop that serves the model nothing waits, since all its requests would: up to
        `_MOST_HELD` responses are held here until the reader has taken those before them.
        """
        if not final:
            self._wait_for_room()
        with self._lock:  # until it has left, so that nothing of another thread gets before it
            if self.closed:
                raise TritonModelException(
                    "Unable to send response. Response sender has been closed."
                )
            core = None if response is None else self.core(response, final=final)
            if self._held or not (final or self._may_send()):
                self._held.append(core)
            else:
                self._say(core)  # may fail, and then nothing was sent
            self.closed = final
            self.sent += response is not None

    def _say(self, response: CoreResponse | None) -> None:
        """Send a response, or without one the end, unless nobody listens."""
        if self.cancelled:  # the model may not have noticed yet
            return
        if response is None:
            self._way.send(Kind.END, self.number)
        elif response.final:
            self._way.respond(self.number, response, self.places)
        else:
            self._say_one(response)
            return
        self._way.forget(self.number)

    def _say_one(self, response: CoreResponse) -> None:
        """Send one of several; counted first, as another thread may soon hear that it was taken."""
        self._credit.spend(response.size)
        try:
            self._way.respond(self.number, response, self.places)
        except BaseException:
            self._credit.refund()
            raise

    def _say_held(self) -> None:
        with self._lock:
            while self._held and self._may_send():
                self._try_held(self._held.popleft())

    def _try_held(self, response: CoreResponse | None) -> None:
        """Send what was held; whoever sent it is not there any more to hear that it cannot be."""
        try:
            self._say(response)
        except Exception as error:  # a response may be unfit to travel in any way
            self._held.clear()
            self.closed = True
            self._way.forget(self.number)
            self._way.send(Kind.ERROR, (self.number, InternalError.code, printable(str(error))))

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
            self._way.look()
        return self.cancelled

    def taken(self, count: int) -> None:
        """The client has taken responses."""
        self._credit.replenish(count)
        self._say_held()  # also if none is held yet: another thread may be about to hold one
        self._notify()

    def cancel(self) -> None:
        """The client has left."""
        self.cancelled = True
        self._held.clear()
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
        if self._way.on_its_loop():
            if not self._may_hold():
                self._way.wait(self._may_hold)
        elif not self._may_send():
            self._way.wait(lambda: self._credit.plenty or self.cancelled)

    def _may_send(self) -> bool:
        return self._credit.left or self.cancelled

    def _may_hold(self) -> bool:
        return len(self._held) < _MOST_HELD or self.cancelled
