"""Sends responses over a link under flow control: as far as the reader has credit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.core.backend import Outcome
from penstock.core.buffer import Buffer
from penstock.core.delivery import deliver
from penstock.core.errors import InferenceError, RequestCancelledError, as_inference_error
from penstock.core.flow_control import WINDOW, Credit, Window
from penstock.core.http_exchange import WINDOW as EXCHANGE_WINDOW
from penstock.core.request import ExchangePart, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.timeline import Timeline
from penstock.hosting.link.memory import SharedMemory
from penstock.hosting.link.messages import Kind, pack_error, pack_next_response, pack_part
from penstock.hosting.link.tensor_codec import NO_PLACES, Places

Send = Callable[..., None]
Respond = Callable[[int, Any, list[Buffer]], None]
"""Sends a packed response, given the number of its request, and the bytes of its tensors."""
SendParts = Callable[[Kind, Any, list[Buffer]], None]
"""Sends the part of an answer over HTTP, with others in one message."""

_ONE = Window(responses=1)
"""Responses without credit stay with their producer, and are not queued a second time."""


@dataclass(frozen=True, slots=True)
class EndKinds:
    """The kinds of messages by which a side of the link ends a stream of responses."""

    end: Kind
    error: Kind


class ResponseSenders:
    """The senders of one link, by the numbers of their requests."""

    def __init__(
        self, end_kinds: EndKinds, respond: Respond, send: Send, memory: SharedMemory
    ) -> None:
        self.end_kinds = end_kinds
        self.respond = respond
        self.send = send
        self.memory = memory
        self.window = WINDOW
        self._open: dict[int, ResponseSender] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, number: int) -> bool:
        """Whether this stream of responses has not ended."""
        return number in self._open

    def open(
        self, number: int, places: Places = NO_PLACES, timeline: Timeline | None = None
    ) -> ResponseSender:
        """A sender for the request with this number; `places` are for its outputs.

        What is recorded in `timeline` is sent before the end of the responses.
        """
        sender = self._open[number] = ResponseSender(self, number, places, timeline)
        return sender

    def open_exchange(
        self, number: int, add: SendParts, timeline: Timeline | None = None
    ) -> ExchangeSender:
        """A sender for the answer to the exchange with this number, which sends by `add`."""
        sender = self._open[number] = ExchangeSender(self, number, add, timeline)
        return sender

    def taken(self, number: int, count: int) -> None:
        """The reader has taken `count` responses: they are credit."""
        if sender := self._open.get(number):
            sender.taken(count)

    def cancel(self, number: int, at: int = 0) -> None:
        """The reader has cancelled, `at` this time, in nanoseconds of `time.monotonic_ns`."""
        if sender := self._open.get(number):
            sender.cancel(at)

    def stop(self, number: int) -> None:
        """The reader wants no more responses, and reads to the end."""
        if sender := self._open.get(number):
            sender.stop()

    def close(self) -> None:
        """The peer is gone: cancel every stream."""
        for sender in list(self._open.values()):
            sender.cancel()

    def forget(self, number: int) -> None:
        """This stream of responses has ended."""
        self._open.pop(number, None)


class ResponseSender:
    """Sends the responses to one request in their order while there is credit."""

    __slots__ = (
        "_credit",
        "_moving",
        "_number",
        "_places",
        "_relay",
        "_senders",
        "_stream",
        "_timeline",
        "done",
    )

    def __init__(
        self,
        senders: ResponseSenders,
        number: int,
        places: Places = NO_PLACES,
        timeline: Timeline | None = None,
        window: Window | None = None,
    ) -> None:
        self._timeline = timeline
        self.done = False
        self._places = places
        self._senders = senders
        self._number = number
        self._credit = Credit(window or senders.window)
        self._stream: ResponseStream | None = None
        self._relay: asyncio.Task[None] | None = None
        self._moving = False

    def answer(self, outcome: Outcome) -> asyncio.Task[None] | None:
        """Send the outcome of a backend; the task that goes on relaying, where one is needed."""
        if isinstance(outcome, ResponseStream):
            self.connect(outcome)
            return None
        stream = ResponseStream(window=_ONE)
        self.connect(stream)
        self._relay = deliver(outcome, stream)
        return self._relay

    def connect(self, stream: ResponseStream) -> None:
        """Send the responses of `stream`, or close it when the request was cancelled."""
        if self.done:
            stream.close()
            return
        self._stream = stream
        stream.watch(self._move)

    def taken(self, count: int) -> None:
        """Earn credit for responses that the reader has taken."""
        self._credit.replenish(count)
        self._move()

    def cancel(self, at: int = 0) -> None:
        """The reader has cancelled: send nothing more for this request but what was recorded.

        That is sent once the outcome is closed, which may take a generator a while.
        """
        self._finish()
        if self._stream is not None:
            self._stream.close(at)
        if self._timeline is None:
            return
        if self._relay is None:
            self._confirm_cancelled()
        else:
            self._relay.add_done_callback(self._confirm_cancelled)

    def stop(self) -> None:
        """Stop the stream, whose remaining responses are sent; without one, end with CANCELLED."""
        if self._stream is not None:
            self._stream.stop()
        else:
            self._finish()
            self._send_end(RequestCancelledError())

    def _move(self) -> None:
        stream = self._stream
        if self._moving or self.done or stream is None:  # called back from below, or finished
            return
        self._moving = True
        try:
            self._send_ready(stream)
        except Exception as error:  # a response may be unfit to travel in any way
            self.cancel()
            self._send_end(as_inference_error(error))
        self._moving = False

    def _send_ready(self, stream: ResponseStream) -> None:
        while self._credit.left and (response := stream.take_next()) is not None:
            self._send(response)
            if self.done:
                return
        if stream.exhausted and not self.done:
            self._finish()
            self._send_end(stream.error)

    def _send(self, response: InferenceResponse) -> None:
        senders = self._senders
        payload: list[Buffer] = []
        header = pack_next_response(response, payload, senders.memory.codec, self._places)
        if response.final:
            self._send_recorded()
        senders.respond(self._number, header, payload)
        if response.final:
            self._finish()
        else:
            self._credit.spend(response.size)

    def _finish(self) -> None:
        self.done = True
        self._senders.forget(self._number)

    def _send_recorded(self) -> None:
        if self._timeline is not None and (recorded := self._timeline.take_recorded()) is not None:
            self._senders.send(Kind.RECORDED, (self._number, *recorded))

    def _confirm_cancelled(self, _: asyncio.Task[None] | None = None) -> None:
        """Send what was recorded, if only nothing: the reader waits for it."""
        recorded = self._timeline.take_recorded() if self._timeline is not None else None
        self._senders.send(Kind.RECORDED, (self._number, *(recorded or ((), {}, ()))))

    def _send_end(self, error: InferenceError | None) -> None:
        self._send_recorded()
        send, end_kinds = self._senders.send, self._senders.end_kinds
        if error is None:
            send(end_kinds.end, self._number)
        else:
            send(end_kinds.error, (self._number, *pack_error(error)))


class ExchangeSender(ResponseSender):
    """Sends the parts of an answer over HTTP while there is credit."""

    __slots__ = ("_add",)

    def __init__(
        self, senders: ResponseSenders, number: int, add: SendParts, timeline: Timeline | None
    ) -> None:
        ResponseSender.__init__(self, senders, number, NO_PLACES, timeline, EXCHANGE_WINDOW)
        self._add = add

    def _send(self, response: InferenceResponse) -> None:
        assert isinstance(response, ExchangePart)
        if response.final:
            self._send_recorded()
        self._add(Kind.PARTS, pack_part(self._number, response), [response.body])
        if response.final:
            self._finish()
        else:
            self._credit.spend(len(response.body))
