"""One RPC on a stream: the `RpcContext` of its handler, and the responses it sends.

Calls read their messages as they come; unary ones read one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, cast

import numpy as np

from penstock.access.policy import Permit
from penstock.core.errors import InferenceError, InternalError, InvalidRequestError
from penstock.core.log.log_fields import error_fields
from penstock.core.log.log_throttle import log_fault
from penstock.core.turns import Sliced
from penstock.http2 import grpc as responses
from penstock.http2.connection import Connection
from penstock.http2.frames import ErrorCode
from penstock.http2.grpc import (
    CHOSEN_FROM,
    IDENTITY,
    PREFIX,
    PREFIX_SIZE,
    CallHead,
    InflateError,
    Inflation,
    MessageReader,
    MessageSizeError,
    write_metadata,
)
from penstock.http2.grpc import LARGE as LARGE_PACKED
from penstock.http2.hpack import Field
from penstock.http2.stream import Buffer, Stream
from penstock.rpc.context import (
    LARGE,
    Metadata,
    Method,
    Reply,
    Starter,
    StatusError,
    finished_in_turns,
    parsed,
    parsed_in_turns,
    serialized,
)
from penstock.rpc.native.channelz_counters import CallCounters
from penstock.rpc.native.response_compression import LARGEST, ResponseCompression, choose_encoding
from penstock.rpc.native.server_state import ServerState
from penstock.rpc.status import StatusCode, retry_metadata, status_code, truncate_message
from penstock.settings import CompressionLevel
from penstock.system.eager_start import start_eagerly

logger = logging.getLogger(__name__)


class CallHost(Protocol):
    """The connection of a call, as the call sees it."""

    @property
    def server(self) -> ServerState:
        """The state that all connections share."""

    @property
    def connection(self) -> Connection[Any]:
        """The HTTP/2 connection, which owns the stream."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def peer(self) -> str:
        """`ipv4:HOST:PORT`, `ipv6:[HOST]:PORT` or `unix:PATH`."""

    @property
    def certificate(self) -> Sequence[str]:
        """The names in the client's certificate."""

    @property
    def begun(self) -> list[RpcCall]:
        """Calls with a deadline that were opened in this read: see `start_deadline`."""

    def wake(self) -> None:
        """Flush the send buffer at the end of this turn of the event loop."""

    def stop_reading(self) -> None:
        """Read nothing from the connection until there is memory for bodies."""


class RpcCall(Stream):
    """A stream that is served by a method. Derived classes read its requests.

    Defaults are class attributes, so that a new call sets only what differs.
    """

    writes_at_once = True
    request_compressed: bool | None = False
    deadline: float | None = None
    trace_id: int = 0
    permit: Permit | None = None
    _initial: Sequence[Field] = ()
    _trailing: Sequence[Field] = ()
    _task: asyncio.Task[Any] | None = None
    _timer: asyncio.TimerHandle | None = None
    _writer: asyncio.Future[None] | None = None
    _compression: ResponseCompression | None = None
    _on_abandoned: Callable[[], None] | None = None
    counters: CallCounters | None = None

    def __init__(self, host: CallHost, stream_id: int, head: CallHead, method: Method) -> None:
        connection = self.connection = host.connection
        send_buffer = self._send_buffer = connection.send_buffer
        self.id = stream_id
        self.window = send_buffer.initial_window
        self.receive_left = connection.limits.stream_window
        self._host = host
        self._head = head
        self.opened = time.monotonic_ns()
        self._method = method
        if head.timeout is not None:
            self.deadline = connection.now + head.timeout
        if head.content_length is not None:
            self.content_left = head.content_length
        if host.server.compression is not CompressionLevel.NONE:
            self.compress_responses(True)

    @property
    def fills_memory(self) -> bool:
        """Whether a request message has begun to come, and is not complete."""
        return False

    def refuse(self) -> None:
        """End with an error, since there is no memory for the rest of its request."""

    # -- RpcContext ---------------------------------------------------------------------------

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._head.metadata

    @property
    def metadata_fields(self) -> Metadata:
        return self._head.metadata_fields

    @property
    def authority(self) -> str:
        return self._head.authority

    @property
    def peer(self) -> str:
        return self._host.peer

    @property
    def certificate(self) -> Sequence[str]:
        return self._host.certificate

    def set_initial_metadata(self, metadata: Metadata) -> None:
        self._initial = write_metadata(metadata)

    async def begin(self) -> None:
        if not (self.answered or self.closed or self.finished):
            self._send_buffer.send_headers(self, self._initial_headers())
            self._host.wake()

    def add_trailing_metadata(self, metadata: Metadata) -> None:
        self._trailing = [*self._trailing, *write_metadata(metadata)]

    def compress_responses(self, wanted: bool) -> None:
        if wanted and self._compression is None and not self.answered:
            server = self._host.server
            encoding = choose_encoding(server.compression, self._head.accepted)
            if encoding:
                self._compression = ResponseCompression(
                    encoding, server, self._send_deferred, self._drained
                )
        if self._compression is not None:
            self._compression.wanted = wanted

    async def write(self, message: Reply) -> None:
        if not self.write_nowait(message):
            await self.writable()

    def write_nowait(self, message: Reply) -> bool:
        if self.closed or self.finished:
            return False
        if self._compression is not None:
            parts = self._compression.defer_large(message)
            if parts is None:
                return False
            message = parts
        self._send(*self._frame_message(message))
        return self._send_buffer.writable(self)

    async def writable(self) -> None:
        while True:
            if self.closed or self.finished:
                raise asyncio.CancelledError  # the client has gone
            room = self._send_buffer.writable(self)
            if room and (self._compression is None or not self._compression.busy):
                return
            if not room:
                self._send_buffer.notify_when_writable(self)
            self._writer = self._host.loop.create_future()
            await self._writer

    # -- running the method -------------------------------------------------------------------

    def run(self, handling: Awaitable[Any]) -> None:
        """Run the handler: up to its first await at once if it is eager, the rest in a task."""
        coroutine = cast(Coroutine[Any, Any, Any], handling)
        loop = self._host.loop
        try:
            if self._method.eager:
                task = start_eagerly(loop, coroutine, self.returned)
            else:
                task = loop.create_task(coroutine)
        except (Exception, asyncio.CancelledError) as error:  # ends the call, not the connection
            self.raised(error)
            return
        if task is None:
            return
        self._task = task
        self._host.server.tasks.add(task)
        task.add_done_callback(self._done)
        if self.deadline is not None:
            self._timer = loop.call_at(self.deadline, self._expired)

    def start(self, start: Starter, request: Any) -> None:
        """Start a method that answers by callbacks, without a coroutine."""
        try:
            self._on_abandoned = start(request, self, self)
        except Exception as error:  # ends the call, not the connection
            self.raised(error)

    def _cancel_answer(self) -> None:
        """Release an answer that is being made: the client has gone, or the deadline passed."""
        cancel, self._on_abandoned = self._on_abandoned, None
        if cancel is not None:
            cancel()

    def on_reset(self, code: ErrorCode) -> None:
        self._cancel_answer()
        self._stop_timer()
        if self.counters is not None:
            self.counters.stream_reset()
        if self._compression is not None:
            self._compression.cancel()
        if self._task is not None and not self._task.done():
            self.connection.lingering += 1
            self._task.add_done_callback(self._lingered)
            self._task.cancel()

    def on_writable(self) -> None:
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def _lingered(self, _: asyncio.Task[Any]) -> None:
        self.connection.lingering -= 1

    def _expired(self) -> None:
        self.abort(StatusError(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"))

    def start_deadline(self) -> None:
        """Arm the deadline timer if the request is still incomplete after this read."""
        if not (self.remote_ended or self.closed or self.finished):
            assert self.deadline is not None
            self._timer = self._host.loop.call_at(self.deadline, self._expired)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._host.server.tasks.discard(task)
        self._task = None  # an error's traceback would keep the call, and what it holds, for long
        self._stop_timer()
        if task.cancelled():
            self.raised(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.raised(error)
        else:
            self.returned(task.result())

    # -- the end ------------------------------------------------------------------------------

    def returned(self, response: Reply | None) -> None:
        """Send the response of a finished method, if it returned one, and the status OK."""
        self._on_abandoned = None
        if self.closed or self.finished:
            return
        try:
            if self._compression is not None:
                response = self._compression.defer_large(response)
                if self._compression.busy:
                    self._compression.call_when_sent(partial(self.returned, None))
                    return
            end = responses.OK
            if self._trailing:
                end = responses.end(StatusCode.OK, metadata=self._trailing)
            parts, size = ((), 0) if response is None else self._frame_message(response)
            beginning = b"" if self.answered else self._initial_headers()
        except Exception as error:  # the response cannot be sent
            self.raised(error)
            return
        if self.counters is not None:
            self.counters.call_ended(succeeded=True)
        if response is not None and not self.answered:
            self._send_buffer.respond(self, beginning, parts, size, end)
        else:
            self._finish(beginning, parts, size, end)
        self._host.wake()

    def _finish(self, beginning: bytes, parts: Sequence[Buffer], size: int, end: bytes) -> None:
        if not self.answered:
            self._send_buffer.send_headers(self, beginning)
        if size:
            self._send_buffer.send_body(self, parts, size)
        self._send_buffer.finish(self, end)

    def raised(self, error: BaseException) -> None:
        """End with the status of an exception that the method raised."""
        self._on_abandoned = None
        if isinstance(error, InferenceError):
            if later := retry_metadata(error):
                self.add_trailing_metadata(later)
            self.fail(StatusError(status_code(error), error.message))
        elif isinstance(error, StatusError):
            self.fail(error)
        elif isinstance(error, asyncio.CancelledError):
            self.fail(StatusError(StatusCode.CANCELLED, "the call was cancelled"))
        else:  # a fault of the server ends as a status, with the reason in the log
            log_fault(logger, error, "%s failed", self._method.name, extra=error_fields(error))
            self.fail(StatusError(StatusCode.INTERNAL, "internal error; see the server's log"))

    def abort(self, status: StatusError) -> None:
        """End with an error, and cancel the handler."""
        if self._compression is not None:
            self._compression.cancel()
        self.fail(status)
        self._cancel_answer()
        if self._task is not None:
            self._task.cancel()

    def fail(self, status: StatusError, *extra: Field) -> None:
        """End with an error, after the responses that were written before."""
        if self.closed or self.finished:
            return
        self._stop_timer()  # a timer would keep the call in memory until it is due
        if self._compression is not None and self._compression.busy:
            self._compression.call_when_sent(partial(self.fail, status, *extra))
            return
        if not self.answered and self._initial:
            self._send_buffer.send_headers(self, self._initial_headers())
        end = responses.end(
            status.code,
            truncate_message(status.message),
            status.details,
            [*self._trailing, *extra],
            only=not self.answered,
        )
        if self.counters is not None:
            self.counters.call_ended(succeeded=False)
        self._send_buffer.finish(self, end)
        self._host.wake()

    # -- messages -----------------------------------------------------------------------------

    def _send(self, parts: list[Buffer], size: int) -> None:
        if not self.answered:
            self._send_buffer.send_headers(self, self._initial_headers())
        self._send_buffer.send_body(self, parts, size)
        self._host.wake()

    def _send_deferred(self, parts: list[Buffer], compressed: bool) -> None:
        size = sum(map(len, parts))
        if self.counters is not None:
            self.counters.message_sent()
        self._send([PREFIX.pack(compressed, size), *parts], PREFIX_SIZE + size)

    def _drained(self, failure: Exception | None) -> None:
        """All responses that were compressed on threads are sent, or one has failed."""
        if failure is not None:
            self.raised(failure)
        self.on_writable()

    def _initial_headers(self) -> bytes:
        if not self._initial and self._compression is None:
            return responses.BEGIN
        encoding = b"" if self._compression is None else self._compression.encoding
        return responses.begin(self._initial, encoding)

    def _frame_message(self, message: Reply) -> tuple[list[Buffer], int]:
        """A message behind its length prefix, in parts, and their size in bytes."""
        if isinstance(message, list):
            parts: list[Buffer] = message
            size = sum(map(len, parts))
        else:
            parts = [serialized(message)]
            size = len(parts[0])
        if size > LARGEST:
            raise InvalidRequestError(
                f"Response has byte size {size} which exceeds gRPC's byte size limit {LARGEST}."
            )
        if self.counters is not None:
            self.counters.message_sent()
        if self._compression is None or not self._compression.wanted:
            return [PREFIX.pack(0, size), *parts], PREFIX_SIZE + size
        packed = self._compression.compress(parts)
        return [PREFIX.pack(1, len(packed)), packed], PREFIX_SIZE + len(packed)


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
