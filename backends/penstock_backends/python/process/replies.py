"""Replies to requests in flight: responses under flow control, the final flag, cancellation."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.core.errors import InferenceError, InternalError, error_from_code
from penstock.core.flow_control import WINDOW, Credit, Window
from penstock.core.request import InferenceResponse as CoreResponse
from penstock.core.tensor import Tensor as CoreTensor
from penstock.core.timeline import NOTHING_RECORDED, Timeline
from penstock.hosting.link.messages import Kind
from penstock.hosting.link.tensor_codec import NO_PLACES, Places
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.responses import InferenceResponse
from penstock_backends.python.process.current_trace import spans_remain
from penstock_backends.python.process.traceback_text import printable

_MOST_HELD = 1024
"""Responses of one request that are held for a slow reader, when an event loop sends them."""


@dataclass(frozen=True, slots=True)
class ReplyPolicy:
    """The reply rules of a model: outputs, decoupling, sequences and flow control.

    `outputs` are those of a request that names none. A model of `sequences` gets every request
    of them, also cancelled ones; an `iterative` one may have a request rescheduled. `window` is
    the flow control: how many responses, and bytes, may be sent before the reader takes them.
    """

    outputs: Sequence[str] = ()
    decoupled: bool = False
    sequences: bool = False
    iterative: bool = False
    window: Window = WINDOW

    @classmethod
    def from_config(cls, config: Mapping[str, Any], window: tuple[int, int]) -> ReplyPolicy:
        """The policy of a model; `config` is its configuration as JSON."""
        policy = config.get("model_transaction_policy") or {}
        sequences = config.get("sequence_batching")
        return cls(
            outputs=tuple(output["name"] for output in config.get("output", ())),
            decoupled=bool(policy.get("decoupled")),
            sequences=sequences is not None,
            iterative=bool(sequences and sequences.get("iterative_sequence")),
            window=Window(*window),
        )


class ReplyLink(Protocol):
    """The link to the server, as far as a reply needs it."""

    def send(self, kind: int, header: Any) -> None: ...

    def send_response(self, number: int, response: CoreResponse, places: Places) -> None: ...

    def poll(self) -> None:
        """Handle the messages that have arrived."""

    def wait(self, done: Callable[[], bool]) -> None:
        """Block until `done()`."""

    def in_reading_loop(self) -> bool:
        """Whether blocking here would block the event loop that reads the link."""


class PendingReply:
    """The reply to one request: its responses, until the final flag closes it or it is cancelled.

    Any thread of the model may send. What the model recorded in `timeline`, that of a request that
    is traced, is sent before the last response.
    """

    __slots__ = (
        "_changed",
        "_credit",
        "_forget",
        "_held",
        "_link",
        "_lock",
        "_on_cancel",
        "cancelled",
        "closed",
        "decoupled",
        "iterative",
        "number",
        "outputs",
        "places",
        "sent",
        "stopped",
        "timeline",
    )

    def __init__(
        self,
        link: ReplyLink,
        number: int,
        outputs: Sequence[str],
        policy: ReplyPolicy,
        forget: Callable[[int], object],
        places: Places = NO_PLACES,
        timeline: Timeline | None = None,
    ) -> None:
        """`forget` is called with the number once the reply is complete."""
        self.number = number
        self.timeline = timeline
        self.places = places
        self.outputs = outputs
        self.decoupled = policy.decoupled
        self.iterative = policy.iterative
        self.closed = False
        self.cancelled = False  # the client has left
        self.stopped = False  # the reader wants no more responses, and reads to the end
        self.sent = 0
        self._credit = Credit(policy.window)
        self._held: deque[CoreResponse | None] = deque()
        self._link = link
        self._forget = forget
        self._lock = threading.Lock()
        self._changed: Callable[[], object] | None = None
        self._on_cancel: Callable[[], object] | None = None

    def send(self, response: InferenceResponse | None, *, final: bool) -> None:
        """Send a response, the final flag, or both; without the flag it blocks for flow control.

        The event loop that serves the model must not block, as all requests would: there, up to
        `_MOST_HELD` responses are held until the reader has taken those before them.
        """
        if not final:
            self._block_for_room()
        with self._lock:  # until it is sent, to keep the order among threads
            if self.closed:
                raise TritonModelException(
                    "Unable to send response. Response sender has been closed."
                )
            core = None if response is None else self.to_core(response, final=final)
            if self._held or not (final or self._may_send()):
                self._held.append(core)
            else:
                self._transmit(core)  # may fail, and then nothing was sent
            self.closed = final
            self.sent += response is not None

    def claim(self) -> bool:
        """Close the reply for a response that is sent otherwise; false if one was sent before."""
        with self._lock:
            if self.closed or self.sent:
                return False
            self.closed = True
            self.sent = 1
            return True

    def give_up(self) -> None:
        """Undo `claim`: the response could not be sent."""
        self.closed = False

    def _transmit(self, response: CoreResponse | None) -> None:
        """Send a response, or without one the end, unless the request is cancelled."""
        if self.cancelled:  # the model may not have noticed yet
            if response is None or response.final:
                self.send_recorded()
            return
        if response is None:
            self.send_recorded()
            self._link.send(Kind.END, self.number)
        elif response.final:
            self.send_recorded()
            self._link.send_response(self.number, response, self.places)
        else:
            self._send_counted(response)
            return
        self._forget(self.number)

    def recorded(self) -> list[tuple[int, Any]]:
        """Kinds and headers of the messages that tell what the model has recorded of the request.

        They precede the last response. Where the client has left, the server waits for one of them,
        if only with nothing.
        """
        timeline = self.timeline
        if timeline is None:
            return []
        remain = spans_remain(self.number)
        if self.cancelled and remain:  # they will be told when they have ended
            return []
        messages: list[tuple[int, Any]] = []
        taken = timeline.take_recorded()
        if taken is not None or self.cancelled:
            messages.append((Kind.RECORDED, (self.number, *(taken or NOTHING_RECORDED))))
        if remain:
            messages.append((Kind.RECORDING, self.number))
        return messages

    def send_recorded(self) -> None:
        """Send what the model has recorded of the request, if it is traced."""
        if self.timeline is not None:
            for kind, header in self.recorded():
                self._link.send(kind, header)

    def _send_counted(self, response: CoreResponse) -> None:
        """Send one of several; counted first, as another thread may soon read that it was taken."""
        self._credit.spend(response.size)
        try:
            self._link.send_response(self.number, response, self.places)
        except BaseException:
            self._credit.refund()
            raise

    def _send_held(self) -> None:
        with self._lock:
            while self._held and self._may_send():
                self._send_one_held(self._held.popleft())

    def _send_one_held(self, response: CoreResponse | None) -> None:
        """Send a held response; its sender has returned, so a failure goes to the client."""
        try:
            self._transmit(response)
        except Exception as error:  # a response may fail to encode in any way
            self._held.clear()
            self.closed = True
            self._forget(self.number)
            self.send_recorded()
            self._link.send(Kind.ERROR, (self.number, InternalError.code, printable(str(error))))

    def to_core(self, response: InferenceResponse, *, final: bool) -> CoreResponse:
        """The response in the server's form, with the requested outputs only."""
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
        """Whether the model should stop; reads the messages that have arrived."""
        if not (self.cancelled or self.stopped):
            self._link.poll()
        return self.cancelled or self.stopped

    def acknowledge(self, count: int) -> None:
        """Return credit for responses that the client has taken."""
        self._credit.replenish(count)
        self._send_held()  # also if none is held yet: another thread may be about to hold one
        self._notify()

    def cancel(self) -> None:
        """Cancel the reply: its client has left."""
        self.cancelled = True
        self._held.clear()
        if self._on_cancel is not None:
            self._on_cancel()
        self._notify()

    def stop(self) -> None:
        """Notify the model to stop; responses that it still sends are delivered."""
        self.stopped = True
        if self._on_cancel is not None:
            self._on_cancel()

    def refuse(self, error: InferenceError) -> None:
        """Fail a request before the model sees it."""
        self.closed = True
        self._forget(self.number)
        self._link.send(Kind.ERROR, (self.number, error.code, error.message))

    # -- for code on an event loop; another thread may read the link --------------------------

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Call `callback` on the event loop when the model should stop, or at once if it should."""
        loop = asyncio.get_running_loop()
        self._on_cancel = lambda: loop.call_soon_threadsafe(callback)
        if self.cancelled or self.stopped:
            self._on_cancel()

    async def wait_for_room(self) -> None:
        """Wait until one more response may be sent."""
        loop = asyncio.get_running_loop()
        while not self._may_send():
            event = asyncio.Event()
            self._changed = lambda: loop.call_soon_threadsafe(event.set)  # noqa: B023
            if not self._may_send():  # credit may have come before the callback was set
                await event.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed()

    def _block_for_room(self) -> None:
        if self._link.in_reading_loop():
            if not self._may_hold():
                self._link.wait(self._may_hold)
        elif not self._may_send():
            self._link.wait(lambda: self._credit.plenty or self.cancelled)

    def _may_send(self) -> bool:
        return self._credit.left or self.cancelled

    def _may_hold(self) -> bool:
        return len(self._held) < _MOST_HELD or self.cancelled
