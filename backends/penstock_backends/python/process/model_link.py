"""The model process's end of the link: messages, tensors in shared memory, dispatch to handlers."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from penstock.core.buffer import Buffer
from penstock.core.request import InferenceResponse as CoreResponse
from penstock.core.tensor import Tensor
from penstock.hosting.link.arena import Arena, ArenaView
from penstock.hosting.link.blocking import BlockingLink, LinkClosedError
from penstock.hosting.link.link import Message
from penstock.hosting.link.messages import (
    LONGEST_TEXT,
    Kind,
    PackedResponse,
    pack_next_response,
    pack_response,
)
from penstock.hosting.link.region_sharing import Borrower, Offer
from penstock.hosting.link.tensor_codec import NO_PLACES, Places, TensorCodec
from penstock_backends.python.process.release_queue import ReleaseQueue

_FORK_ENDED = b"a fork of a model's process has left the model's code, and is ended\n"

_NO_FIELDS: dict[str, str] = {}

Handler = Callable[[Any, memoryview], None]
"""Handles the header and payload of one kind of message."""


class ModelLink:
    """Sends messages to the server, and dispatches those that the server sends.

    A message whose kind has a handler (see `on`) is handled by the thread that reads it, which must
    not block. All others are work: they are queued, and one consumer takes them in order.
    """

    def __init__(self, connection: socket.socket, inputs: int, outputs: int) -> None:
        """`inputs` and `outputs` are the descriptors of the arenas that tensors travel in."""
        self._connection = connection
        self._is_fork = False
        self._link = BlockingLink(connection, self._dispatch)
        self._out = Arena(outputs)
        self._released = ReleaseQueue(self.report_released)
        self._borrower = Borrower()
        self._borrower.on_return = self._released.add_block
        view = ArenaView(inputs, self._released.add_block)
        self.codec = TensorCodec(self._out, view, borrower=self._borrower)
        self._work: deque[Message] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_work: Callable[[], None] | None = None
        self._handlers: dict[int, Handler] = {Kind.FREE: self._free}

    def on(self, kind: int, handler: Handler) -> None:
        """Have messages of this kind handled by `handler` as soon as they are read."""
        self._handlers[kind] = handler

    # -- forks --------------------------------------------------------------------------------

    def close_in_fork(self) -> None:
        """Called in a fork of the process, which has neither the link nor the shared memory.

        The fork may run on in the model's code, as workers of `multiprocessing` do.
        """
        self._is_fork = True
        self._connection.close()

    def exit_if_fork(self) -> None:
        """End this process if it is a fork: no code but the model's may run there."""
        if self._is_fork:
            with suppress(OSError):  # the model may have closed it
                os.write(2, _FORK_ENDED)
            os._exit(1)

    # -- sending ------------------------------------------------------------------------------

    def send(self, kind: int, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Send one message."""
        self._link.send(kind, header, payload)

    def send_parts(self, parts: Sequence[Buffer], *, urgent: bool = True) -> None:
        """Send several encoded messages in one write.

        If not urgent, they are held for the next write while there is work whose answers follow.
        """
        if urgent or not self._work:
            self._link.send_parts(parts)
        else:
            self._link.hold_parts(parts)

    def send_response(
        self, number: int, response: CoreResponse, places: Places = NO_PLACES
    ) -> None:
        """Send one response of a request; those of a burst share a write."""
        self.exit_if_fork()
        header, payload = pack_response(response, self.codec, places)
        send = self._link.send if response.final else self._link.offer
        send(Kind.RESPONSE, (number, header), payload)

    def log(
        self, level: int, message: str, file: str, line: int, fields: dict[str, str] = _NO_FIELDS
    ) -> None:
        """Write to the server's log, which adds the names of model and instance to `fields`."""
        text = message[:LONGEST_TEXT]
        self._link.send(Kind.LOG, (level, "penstock.model", file, line, text, fields))

    def report_released(self) -> None:
        """Report released blocks of the server's memory and dropped calls to the server."""
        if blocks := self._released.take_blocks():
            self._link.send(Kind.FREE, blocks)
        while (call := self._released.take_call()) is not None:
            self._link.send(Kind.CALL_CANCEL, call)

    def drop_call(self, number: int) -> None:
        """Cancel a call with the next report; may be called at any moment, in any thread."""
        self._released.add_call(number)

    # -- tensors ------------------------------------------------------------------------------

    def pack_response(
        self, response: CoreResponse, payload: list[Buffer], places: Places = NO_PLACES
    ) -> PackedResponse:
        """A response's header; the bytes of its tensors are added to `payload`."""
        self.exit_if_fork()
        return pack_next_response(response, payload, self.codec, places)

    def find_parts(self, response: CoreResponse, inputs: Mapping[str, Tensor]) -> CoreResponse:
        """The response, with outputs that are parts of inputs released to be sent by reference."""
        outputs = self.codec.find_parts(response.outputs, inputs)
        if outputs is response.outputs:
            return response
        return CoreResponse(outputs, response.parameters, response.final, response.error)

    def begin_batch(self, number: int) -> None:
        """Record that this batch has begun, where the server sees it even if the process dies."""
        self._out.begin(number)

    def map_region(self, offer: Offer, descriptor: int) -> None:
        """Map a memory region that the server offers, and confirm it; in any thread."""
        if (number := self._borrower.take(offer, descriptor)) is not None:
            with suppress(LinkClosedError):  # another thread notices as well
                self.send(Kind.REGION_MAPPED, number)

    def unmap_region(self, number: int) -> None:
        """Unmap a region that the server has withdrawn."""
        self._borrower.give_back(number)

    # -- receiving ----------------------------------------------------------------------------

    @property
    def waited(self) -> int:
        """Nanoseconds that the main thread has waited for the server, in all."""
        return self._link.waited

    def next_work(self) -> Message:
        """The next message that is work, waiting for it."""
        if not self._work:
            self.wait(lambda: bool(self._work))
        return self._work.popleft()

    def poll_work(self) -> Message | None:
        """The next message that is work, if there is one."""
        if self._link.closed:
            raise LinkClosedError
        return self._work.popleft() if self._work else None

    def add_work(self, kind: int) -> None:
        """Queue work of the process's own, not from a message of the link; from any thread."""
        self._dispatch(kind, None, memoryview(b""))

    def wait(self, done: Callable[[], bool]) -> None:
        """Block this thread until `done()`, reading the link unless another thread does."""
        self.report_released()
        self._link.wait(done)

    def poll(self) -> None:
        """Handle the messages that have arrived, without waiting."""
        self._link.poll()

    def read_on(self, loop: asyncio.AbstractEventLoop, on_work: Callable[[], None]) -> None:
        """Have `loop` read the link from now on, and call `on_work` when there is work."""
        self._loop = loop
        self._released.report_on(loop)
        self._on_work = on_work

        def readable() -> None:
            try:
                self._link.poll()
            finally:  # the loop logs what a handler raises
                if self._link.closed:
                    on_work()

        loop.add_reader(self._link.fileno(), readable)
        # libuv makes what it watches non-blocking, and a full socket must not fail a write.
        self._connection.setblocking(True)
        loop.call_soon(on_work)

    def is_read_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether this loop reads the link."""
        return self._loop is loop

    def in_reading_loop(self) -> bool:
        """Whether the caller runs on the loop that reads the link, and must not block it."""
        return self._loop is not None and asyncio._get_running_loop() is self._loop

    def _dispatch(self, kind: int, header: Any, payload: memoryview) -> None:
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(header, payload)
            return
        self._work.append((kind, header, payload))
        if self._loop is not None and self._on_work is not None:
            self._loop.call_soon_threadsafe(self._on_work)  # any thread may have read it

    def _free(self, offsets: list[int], _: memoryview) -> None:
        for offset in offsets:
            self._out.free(offset)
