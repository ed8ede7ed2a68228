"""Unary and streaming calls: they read one request message, or an iterator of many."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.core.errors import InferenceError, InternalError
from penstock.core.turns import Sliced
from penstock.http2.compression import IDENTITY, InflateError, Inflation
from penstock.http2.compression import LARGE as LARGE_PACKED
from penstock.http2.errors import ErrorCode
from penstock.http2.grpc_headers import CallHead
from penstock.http2.grpc_messages import (
    CHOSEN_FROM,
    PREFIX,
    PREFIX_SIZE,
    MessageReader,
    MessageSizeError,
)
from penstock.http2.hpack import Field
from penstock.http2.stream import Buffer
from penstock.rpc.context import (
    LARGE,
    Method,
    Reply,
    StatusError,
    finished_in_turns,
    parsed,
    parsed_in_turns,
)
from penstock.rpc.native.rpc_call import CallHost, RpcCall
from penstock.rpc.status import StatusCode

_TOO_SLOW = "the server's memory for requests is used up, and this one takes the longest to come"


class ReadingCall(RpcCall):
    """A call that assembles messages from DATA frames, and parses them as requests."""

    _reader: MessageReader | None = None
    _unreturned = 0
    """Bytes whose credit is kept until there is memory for more."""
    _packed = False
    """Whether a message waits for memory to be unpacked into."""

    def memory(self) -> memoryview | None:
        return None if self._reader is None or self.finished else self._reader.memory()

    def on_reset(self, code: ErrorCode) -> None:
        self._read_no_more()
        super().on_reset(code)

    def fail(self, status: StatusError, *extra: Field) -> None:
        super().fail(status, *extra)
        self._read_no_more()

    def _read_no_more(self) -> None:
        """Release what has come of a message."""
        if self._reader is not None:
            self._reader.close()
            self._host.server.bodies.stop_waiting(self._go_on)

    @property
    def fills_memory(self) -> bool:
        if self.finished:
            return False
        return self._packed or not (self._reader is None or self._reader.empty)

    def refuse(self) -> None:
        self.abort(StatusError(StatusCode.RESOURCE_EXHAUSTED, _TOO_SLOW))
        self._go_on()

    def _consumed(self, size: int) -> None:
        """Return the credit of bytes that were read; of an incomplete message as memory allows."""
        bodies = self._host.server.bodies
        if not (self.fills_memory and bodies.quota.exhausted):
            if self._unreturned:
                bodies.stop_waiting(self._go_on)
                size, self._unreturned = size + self._unreturned, 0
            self.connection.consumed(self, size)
            return
        self._unreturned += size
        bodies.wait(self._go_on)
        if bodies.quota.overdrawn:
            self._host.stop_reading()

    def _go_on(self) -> None:
        size, self._unreturned = self._unreturned, 0
        self.connection.consumed(self, size)
        self._host.wake()

    def _read_messages(self, pieces: Sequence[memoryview], size: int) -> list[tuple[int, Buffer]]:
        reader = self._reader
        if reader is None:
            limits, method = self.connection.limits, self._method
            most = limits.largest(control=not method.unbounded)
            reader = self._reader = MessageReader(
                most, method.reserve, self._host.server.bodies.quota
            )
        try:
            return reader.feed_pieces(pieces, size)
        except MessageSizeError as error:
            self._too_large(error)
            return []

    def _too_large(self, error: MessageSizeError) -> None:
        self.abort(StatusError(StatusCode.RESOURCE_EXHAUSTED, str(error)))

    def _message_read(self, flag: int) -> None:
        self.request_compressed = bool(flag)
        if self.counters is not None:
            self.counters.message_received()

    async def _parse(self, flag: int, data: Buffer) -> Any:
        """The request of a message of any size; raises the error that ends the call."""
        if flag:
            data = await self._decompress(flag, data)
        self._message_read(flag)
        return await parsed_in_turns(self._method, data)

    async def _decompress(self, flag: int, data: Buffer) -> Buffer:
        """Decompress a message: here if it is small on both sides, else on a thread."""
        encoding = self._head.encoding
        if flag != 1 or encoding == IDENTITY:
            raise InternalError("message is compressed, but the call names no compression")
        limits = self.connection.limits
        most = limits.largest(control=not self._method.unbounded)
        self._packed = True
        try:
            await self._host.server.bodies.room()
        finally:
            self._packed = False
        inflation = Inflation(encoding, data, limits.most_inflated(len(data), most))
        try:
            if len(data) <= LARGE_PACKED and inflation.step():
                return inflation.result()
            return self._counted(await self._host.server.workers.run_growing(inflation))
        except InflateError as error:
            if error.too_large:
                raise StatusError(StatusCode.RESOURCE_EXHAUSTED, str(error)) from error
            raise InternalError(str(error)) from error
        finally:
            inflation.close()

    def _counted(self, data: Buffer) -> Buffer:
        """The same bytes, as a part of the memory of bodies."""
        memory = np.frombuffer(data, np.uint8).data
        self._host.server.bodies.quota.open(memory, len(data))
        return memory


class UnaryCall(ReadingCall):
    """A call with one request, which is handled when the client has sent all of it."""

    _message: tuple[int, Buffer] | None = None
    _count = 0

    def on_open(self) -> None:
        if self.deadline is not None:
            self._host.begun.append(self)

    def on_data(self, data: memoryview) -> None:
        size = len(data)
        if self._reader is None and self._message is None and size >= PREFIX_SIZE:
            # The usual case: one frame that holds the whole message.
            flag, expected = PREFIX.unpack_from(data)
            if expected == size - PREFIX_SIZE and size < CHOSEN_FROM:
                self._message = flag, bytes(data[PREFIX_SIZE:])
                self._count = 1
                self.connection.consumed(self, size)
                return
        if not self.finished:
            self._keep_messages(self._read_messages((data,), size))
        self._consumed(size)

    def on_pieces(self, pieces: Sequence[memoryview], size: int) -> None:
        if not self.finished:
            self._keep_messages(self._read_messages(pieces, size))
        self._consumed(size)

    def on_filled(self, size: int) -> None:
        assert self._reader is not None
        message = self._reader.filled(size)
        self._keep_messages([] if message is None else [message])
        self._consumed(size)

    def on_end(self) -> None:
        self._stop_timer()
        if self.finished:
            return
        complete = self._reader is None or self._reader.empty
        message, self._message, self._reader = self._message, None, None
        if message is None or not complete:
            self._refuse_count()
            return
        if message[0]:
            self.run(self._handle_later(*message))
            return
        self._message_read(0)
        method, data = self._method, message[1]
        try:
            request = parsed(method, data)
        except InferenceError as error:
            self.raised(error)
            return
        if len(data) >= LARGE and isinstance(request, Sliced):
            self.run(self._handle_sliced(request))
        elif method.start is not None:
            self.start(method.start, request)
        else:
            self.run(method.handler(request, self))

    async def _handle_later(self, flag: int, data: Buffer) -> Any:
        return await self._method.handler(await self._parse(flag, data), self)

    async def _handle_sliced(self, request: Sliced[Any]) -> Any:
        return await self._method.handler(await finished_in_turns(request), self)

    def _keep_messages(self, messages: list[tuple[int, Buffer]]) -> None:
        for message in messages:
            self._count += 1
            self._message = message
        if self._count > 1:  # now: there may be any number of them
            self._message = None
            self._refuse_count()

    def _refuse_count(self) -> None:
        text = f"expected one request message, got {self._count}"
        self.fail(StatusError(StatusCode.INTERNAL, text))


class StreamCall(ReadingCall):
    """A call with an iterator of requests; those not yet read keep the stream's window closed."""

    def __init__(self, host: CallHost, stream_id: int, head: CallHead, method: Method) -> None:
        super().__init__(host, stream_id, head, method)
        self._messages: deque[tuple[int, Buffer]] = deque()
        self._held = 0
        self._arrival: asyncio.Future[None] | None = None

    def on_open(self) -> None:
        self.run(self._method.handler(self, self))

    def on_data(self, data: memoryview) -> None:
        self._received(len(data), [] if self.finished else self._read_messages((data,), len(data)))

    def on_filled(self, size: int) -> None:
        assert self._reader is not None
        message = self._reader.filled(size)
        self._received(size, [] if message is None else [message])

    def on_end(self) -> None:
        self._wake_reader()

    def returned(self, response: Reply | None) -> None:
        super().returned(response)
        if self.closed or self.finished:
            self._read_no_more()

    def _read_no_more(self) -> None:
        self._messages.clear()
        super()._read_no_more()

    def __aiter__(self) -> StreamCall:
        return self

    async def __anext__(self) -> Any:
        if self._messages and (turn := self._host.server.backlog.take()) is not None:
            await turn
        while not self._messages:
            if self.remote_ended:
                if self._reader is not None and not self._reader.empty:
                    raise InternalError("the client's last message is cut short")
                raise StopAsyncIteration
            self._arrival = self._host.loop.create_future()
            await self._arrival
        flag, data = self._next()
        used = self._held if not self._messages else min(PREFIX_SIZE + len(data), self._held)
        self._held -= used
        self.connection.consumed(self, used)
        self._host.wake()
        if flag:
            return await self._parse(flag, data)
        self._message_read(flag)
        request = parsed(self._method, data)
        return await finished_in_turns(request) if isinstance(request, Sliced) else request

    def _next(self) -> tuple[int, Buffer]:
        """The next message; those that follow it are queued before it is the last one."""
        message = self._messages.popleft()
        if not self._messages and self._reader is not None:
            try:
                self._messages += self._reader.more()
            except MessageSizeError as error:
                self._too_large(error)
        return message

    def _received(self, size: int, messages: list[tuple[int, Buffer]]) -> None:
        """Queue messages; bytes of an incomplete one return credit at once if none is queued."""
        self._held += size
        if messages:
            self._messages += messages
            self._wake_reader()
        elif not self._messages:
            held, self._held = self._held, 0
            self._consumed(held)

    def _wake_reader(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
