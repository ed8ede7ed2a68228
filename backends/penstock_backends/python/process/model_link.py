"""The link of a model process to the server, and what is under way on it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from penstock.core.buffer import Buffer
from penstock.core.request import InferenceRequest as CoreRequest
from penstock.core.request import InferenceResponse as CoreResponse
from penstock.hosting.link.arena import Arena, ArenaView
from penstock.hosting.link.blocking import BlockingLink, LinkClosedError
from penstock.hosting.link.messages import Kind, pack_next_response, pack_response, unpack_request
from penstock.hosting.link.region_sharing import Borrower
from penstock.hosting.link.tensor_codec import NO_PLACES, Places, TensorCodec
from penstock_backends.python.pb_utils import runtime
from penstock_backends.python.process.linked_runtime import LinkedRuntime
from penstock_backends.python.process.release_queue import LetGo
from penstock_backends.python.process.replies import PendingReply, Terms
from penstock_backends.python.process.worker import Worker

_LEFT = b"a fork of a model's process has left the model's code, and is ended\n"


class Stub:
    """The link to the server, and what is under way on it."""

    def __init__(self, connection: socket.socket, inputs: int, outputs: int) -> None:
        self._connection = connection
        self._cut = False
        self._link = BlockingLink(connection, self._receive)
        self._out = Arena(outputs)
        self._let_go = LetGo(self.tell_let_go)
        self._borrower = Borrower()
        self._borrower.on_return = self._let_go.block
        view = ArenaView(inputs, self._let_go.block)
        self._exchange = TensorCodec(self._out, view, borrower=self._borrower)
        self._work: deque[tuple[int, Any, memoryview]] = deque()
        self._replies: dict[int, PendingReply] = {}
        self._left: set[int] = set()
        self._latest = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_work: Callable[[], None] | None = None
        self.runtime = LinkedRuntime(self, self._exchange, self._let_go)
        self._worker = Worker(self)
        self._handlers: dict[int, Callable[[Any, memoryview], None]] = {
            Kind.TAKEN: self._taken,
            Kind.CANCEL: self._cancel,
            Kind.FREE: self._free,
            **self.runtime.handlers,
        }

    def serve(self) -> None:
        """Do what the server asks until it says that this is the end."""
        runtime.install(self.runtime)
        while self._worker.handle(*self.next_work()):
            pass

    def cut(self) -> None:
        """This is a fork of the process now: without a link, and with memory that is not its own.

        It may run on in the model's code, as workers of `multiprocessing` do.
        """
        self._cut = True
        self._connection.close()

    def end_fork(self) -> None:
        """If this is a fork, end it: it has left the model's code, and nothing else is its."""
        if self._cut:
            with suppress(OSError):  # the model may have closed it
                os.write(2, _LEFT)
            os._exit(1)

    def next_work(self) -> tuple[int, Any, memoryview]:
        """The next message that asks for work, waiting for it."""
        if not self._work:
            self.wait(lambda: bool(self._work))
        return self._work.popleft()

    # -- for the worker and its replies -------------------------------------------------------

    def accept(
        self, packed: Sequence[Any], payload: memoryview, terms: Terms
    ) -> list[tuple[PendingReply, CoreRequest]]:
        """The requests of a batch, and the replies owed.

        Without those whose client has left, unless the model has to see every request.
        """
        owed: list[tuple[PendingReply, CoreRequest]] = []
        at = 0
        for one in packed:
            number, request, at = unpack_request(one, payload, at, self._exchange)
            reply = self._owe(number, request, terms)
            if not reply.cancelled or terms.sequences:
                owed.append((reply, request))
        return owed

    def _owe(self, number: int, request: CoreRequest, terms: Terms) -> PendingReply:
        """The reply to a request; the same as before to one that was rescheduled."""
        if (known := self._replies.get(number)) is not None:
            return known
        wanted = request.requested_outputs or terms.outputs
        reply = PendingReply(self, number, wanted, terms, request.output_places)
        again = number <= self._latest  # and whoever waited for it has left
        # In this order, since another thread may read meanwhile that the client has left.
        self._replies[number] = reply
        self._latest = max(self._latest, number)
        if again or number in self._left:
            self._left.discard(number)
            self.forget(number)
            reply.cancelled = True
        return reply

    @property
    def waited(self) -> int:
        """Nanoseconds that the main thread has waited for the server, in all."""
        return self._link.waited

    def begin(self, number: int) -> None:
        """A batch is going to be executed."""
        self._out.begin(number)

    def forget(self, number: int) -> None:
        """The model has answered."""
        self._replies.pop(number, None)

    def send(self, kind: int, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Say something to the server."""
        self._link.send(kind, header, payload)

    def send_parts(self, parts: Sequence[Buffer], *, hurry: bool = True) -> None:
        """Say several things, encoded already, in one write; without hurry together with more.

        They wait only while there is work at hand whose answers will follow.
        """
        if hurry or not self._work:
            self._link.send_parts(parts)
        else:
            self._link.hold_parts(parts)

    def borrow(self, kind: int, header: Any) -> None:
        """Map memory of a client's that the server offers, or let go of it."""
        if kind == Kind.REGION_GONE:
            self._borrower.give_back(header)
        elif (number := self._borrower.take(header)) is not None:
            self.send(Kind.REGION_MAPPED, number)

    def pack_response(
        self, response: CoreResponse, payload: list[Buffer], places: Places = NO_PLACES
    ) -> Any:
        """A response's header; the bytes of its tensors are added to `payload`."""
        self.end_fork()
        return pack_next_response(response, payload, self._exchange, places)

    def find_parts(self, response: CoreResponse, request: CoreRequest) -> CoreResponse:
        """The response, without hold on outputs that are parts of inputs; see `TensorCodec`."""
        outputs = self._exchange.find_parts(response.outputs, request.inputs)
        if outputs is response.outputs:
            return response
        return CoreResponse(outputs, response.parameters, response.final, response.error)

    def keep_parts(self, response: CoreResponse) -> None:
        """The response is not sent after all."""
        self._exchange.keep_parts(response.outputs)

    def respond(self, number: int, response: CoreResponse, places: Places = NO_PLACES) -> None:
        """Send one response, perhaps together with those that follow at once."""
        self.end_fork()
        header, payload = pack_response(response, self._exchange, places)
        send = self._link.send if response.final else self._link.offer
        send(Kind.RESPONSE, (number, header), payload)

    def wait(self, done: Callable[[], bool]) -> None:
        """Block this thread until `done()`, reading the link if nobody else does."""
        self.tell_let_go()
        self._link.wait(done)

    def look(self) -> None:
        """Handle what the server has said meanwhile."""
        self._link.poll()

    def tell_let_go(self) -> None:
        """Tell what the model has let go of: blocks of the server's arena, and calls."""
        if blocks := self._let_go.take_blocks():
            self._link.send(Kind.FREE, blocks)
        while (call := self._let_go.take_call()) is not None:
            self.runtime.cancel_call(call)

    # -- an event loop, for models that are coroutines ----------------------------------------

    def watch(self, loop: asyncio.AbstractEventLoop, on_work: Callable[[], None]) -> None:
        """Have `loop` read the link from now on, and call `on_work` when there is some."""
        self._loop = loop
        self._let_go.tell_on(loop)
        self._on_work = on_work

        def readable() -> None:
            self._link.poll()
            if self._link.closed:
                on_work()

        loop.add_reader(self._link.fileno(), readable)
        loop.call_soon(on_work)

    def watched_by(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether this loop reads the link."""
        return self._loop is loop

    def on_its_loop(self) -> bool:
        """Whether the caller runs on the loop that reads the link, and must not block it."""
        return self._loop is not None and asyncio._get_running_loop() is self._loop

    def take_work(self) -> tuple[int, Any, memoryview] | None:
        """The next message that asks for work, if one is here."""
        if self._link.closed:
            raise LinkClosedError
        return self._work.popleft() if self._work else None

    # -- what the server says -----------------------------------------------------------------

    def _receive(self, kind: int, header: Any, payload: memoryview) -> None:
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(header, payload)
            return
        self._work.append((kind, header, payload))
        if self._loop is not None and self._on_work is not None:
            self._loop.call_soon_threadsafe(self._on_work)  # whichever thread has read it

    def _taken(self, header: Any, _: memoryview) -> None:
        for number, count in header:
            if reply := self._replies.get(number):
                reply.taken(count)

    def _cancel(self, number: Any, _: memoryview) -> None:
        self._left.add(number)  # first of all: its batch may get its turn in this moment
        reply = self._replies.pop(number, None)
        if reply is not None:
            reply.cancel()
        if reply is not None or number <= self._latest:
            self._left.discard(number)

    def _free(self, offsets: Any, _: memoryview) -> None:
        for offset in offsets:
            self._out.free(offset)
