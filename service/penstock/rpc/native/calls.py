"""Unary and streaming calls: they read one request message, or an iterator of many."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from penstock.core.errors import InternalError
from penstock.http2.compression import IDENTITY, LARGE, InflateError, Inflation
from penstock.http2.errors import ErrorCode
from penstock.http2.grpc_headers import CallHead
from penstock.http2.grpc_messages import (
    CHOSEN_FROM,
    PREFIX,
    PREFIX_SIZE,
    MessageReader,
    MessageSizeError,
)
from penstock.http2.stream import Buffer
from penstock.rpc.context import Method, StatusError
from penstock.rpc.native.rpc_call import CallHost, RpcCall
from penstock.rpc.status import StatusCode


class ReadingCall(RpcCall):
    """A call that assembles messages from DATA frames, and parses them as requests."""

    _reader: MessageReader | None = None

    def memory(self) -> memoryview | None:
        return None if self._reader is None or self.finished else self._reader.memory()

    def on_reset(self, code: ErrorCode) -> None:
        if self._reader is not None:
            self._reader.close()
        super().on_reset(code)

    def _read_messages(self, pieces: Sequence[memoryview], size: int) -> list[tuple[int, Buffer]]:
        reader = self._reader
        if reader is None:
            limit = self.connection.limits.max_message_size
            reader = self._reader = MessageReader(limit, self._method.reserve)
        try:
            return reader.feed_pieces(pieces, size)
        except MessageSizeError as error:
            self.abort(StatusError(StatusCode.RESOURCE_EXHAUSTED, str(error)))
            return []

    def _parse(self, flag: int, data: Buffer) -> Any:
        """The request of an uncompressed message; raises the error that ends the call."""
        self.request_compressed = bool(flag)
        if self.counters is not None:
            self.counters.message_received()
        method = self._method
        try:
            return (method.parse or method.request.FromString)(data)
        except DecodeError as error:
            raise InternalError("Unable to parse request") from error

    async def _decompress(self, flag: int, data: Buffer) -> bytes:
        """Decompress a message: here if it is small on both sides, else on a thread."""
        encoding = self._head.encoding
        if flag != 1 or encoding == IDENTITY:
            raise InternalError("message is compressed, but the call names no compression")
        inflation = Inflation(encoding, data, self.connection.limits.max_inflated_size)
        try:
            if len(data) <= LARGE and inflation.step():
                return inflation.result()
            return await self._host.server.workers.run_growing(inflation)
        except InflateError as error:
            if error.too_large:
                raise StatusError(StatusCode.RESOURCE_EXHAUSTED, str(error)) from error
            raise InternalError(str(error)) from error
        finally:
            inflation.close()


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
        self.connection.consumed(self, size)

    def on_pieces(self, pieces: Sequence[memoryview], size: int) -> None:
        if not self.finished:
            self._keep_messages(self._read_messages(pieces, size))
        self.connection.consumed(self, size)

    def on_filled(self, size: int) -> None:
        assert self._reader is not None
        message = self._reader.filled(size)
        self._keep_messages([] if message is None else [message])
        self.connection.consumed(self, size)

    def on_end(self) -> None:
        self._stop_timer()
        if self.finished:
            return
        complete = self._reader is None or self._reader.empty
        message, self._message, self._reader = self._message, None, None
        if message is None or self._count != 1 or not complete:
            text = f"expected one request message, got {self._count}"
            self.fail(StatusError(StatusCode.INTERNAL, text))
            return
        if message[0]:
            self.run(self._handle_compressed(*message))
            return
        try:
            request = self._parse(*message)
        except InternalError as error:
            self.raised(error)
            return
        method = self._method
        if method.start is not None:
            self.start(method.start, request)
        else:
            self.run(method.handler(request, self))

    async def _handle_compressed(self, flag: int, data: Buffer) -> Any:
        request = self._parse(flag, await self._decompress(flag, data))
        return await self._method.handler(request, self)

    def _keep_messages(self, messages: list[tuple[int, Buffer]]) -> None:
        for message in messages:
            self._count += 1
            self._message = message


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

    def on_reset(self, code: ErrorCode) -> None:
        self._messages.clear()
        super().on_reset(code)

    def __aiter__(self) -> StreamCall:
        return self

    async def __anext__(self) -> Any:
        while not self._messages:
            if self.remote_ended:
                if self._reader is not None and not self._reader.empty:
                    raise InternalError("the client's last message is cut short")
                raise StopAsyncIteration
            self._arrival = self._host.loop.create_future()
            await self._arrival
        flag, data = self._messages.popleft()
        used = self._held if not self._messages else min(PREFIX_SIZE + len(data), self._held)
        self._held -= used
        self.connection.consumed(self, used)
        self._host.wake()
        if flag:
            data = await self._decompress(flag, data)
        return self._parse(flag, data)

    def _received(self, size: int, messages: list[tuple[int, Buffer]]) -> None:
        """Queue messages; bytes of an incomplete one return credit at once if none is queued."""
        self._held += size
        if messages:
            self._messages += messages
            self._wake_reader()
        elif not self._messages:
            held, self._held = self._held, 0
            self.connection.consumed(self, held)

    def _wake_reader(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
