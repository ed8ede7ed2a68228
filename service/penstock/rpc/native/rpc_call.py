"""One call: the `RpcContext` of the method that serves it, and its responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from penstock.core.errors import InferenceError, InvalidRequestError
from penstock.http2 import grpc_headers as responses
from penstock.http2.errors import ErrorCode
from penstock.http2.grpc_headers import write_metadata
from penstock.http2.grpc_messages import PREFIX, PREFIX_SIZE
from penstock.http2.hpack import Field
from penstock.http2.stream import Buffer, Stream
from penstock.inflight.eager_start import start_eagerly
from penstock.rpc.context import Metadata, Reply, Starter, StatusError, serialized
from penstock.rpc.native.response_compression import LARGEST, Packing, choose_encoding
from penstock.rpc.native.route import Route
from penstock.rpc.status import StatusCode, sendable, status_code
from penstock.settings import CompressionLevel

if TYPE_CHECKING:
    from penstock.rpc.native.channelz_counters import CallTally
    from penstock.rpc.native.connection import Shell

logger = logging.getLogger(__name__)


class Call(Stream):
    """A stream that a method serves. Derived classes read its requests.

    Defaults stand on the class, so that a new call sets only what differs.
    """

    writes_at_once = True
    request_compressed: bool | None = False
    deadline: float | None = None
    _initial: Sequence[Field] = ()
    _trailing: Sequence[Field] = ()
    _task: asyncio.Task[Any] | None = None
    _timer: asyncio.TimerHandle | None = None
    _writer: asyncio.Future[None] | None = None
    _packing: Packing | None = None
    _leave: Callable[[], None] | None = None
    tally: CallTally | None = None

    def __init__(self, shell: Shell, stream_id: int, route: Route) -> None:
        connection = self.connection = shell.connection
        outbox = self._outbox = shell.outbox
        self.id = stream_id
        self.window = outbox.initial_window
        self.receive_left = connection.limits.stream_window
        self._shell = shell
        self._head = head = route.head
        self._method = route.method
        if head.timeout is not None:
            self.deadline = connection.now + head.timeout
        if head.content_length is not None:
            self.content_left = head.content_length
        if shell.endpoint.compression is not CompressionLevel.NONE:
            self.compress_responses(True)

    # -- RpcContext ---------------------------------------------------------------------------

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._head.metadata

    @property
    def metadata_fields(self) -> Metadata:
        return self._head.metadata_fields

    @property
    def peer(self) -> str:
        return self._shell.peer

    def set_initial_metadata(self, metadata: Metadata) -> None:
        self._initial = write_metadata(metadata)

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        self._trailing = write_metadata(metadata)

    def compress_responses(self, wanted: bool) -> None:
        if wanted and self._packing is None and not self.answered:
            endpoint = self._shell.endpoint
            encoding = choose_encoding(endpoint.compression, self._head.accepted)
            if encoding:
                self._packing = Packing(encoding, endpoint, self._send_packed, self._drained)
        if self._packing is not None:
            self._packing.wanted = wanted

    async def write(self, message: Reply) -> None:
        if not self.write_nowait(message):
            await self.writable()

    def write_nowait(self, message: Reply) -> bool:
        if self.closed or self.finished:
            return False
        if self._packing is not None:
            kept = self._packing.keep(message)
            if kept is None:
                return False
            message = kept
        self._send(*self._framed(message))
        return self._outbox.writable(self)

    async def writable(self) -> None:
        while True:
            if self.closed or self.finished:
                raise asyncio.CancelledError  # nobody is there to write to
            room = self._outbox.writable(self)
            if room and (self._packing is None or not self._packing.busy):
                return
            if not room:
                self._outbox.notify(self)
            self._writer = self._shell.loop.create_future()
            await self._writer

    # -- running the method -------------------------------------------------------------------

    def run(self, handling: Awaitable[Any]) -> None:
        """Run the handler: at once if it may be, in a task of its own once it waits."""
        coroutine = cast(Coroutine[Any, Any, Any], handling)
        loop = self._shell.loop
        try:
            if self._method.eager:
                task = start_eagerly(loop, coroutine, self.returned)
            else:
                task = loop.create_task(coroutine)
        except (Exception, asyncio.CancelledError) as error:  # what ends the call, not the pass
            self.raised(error)
            return
        if task is None:
            return
        self._task = task
        self._shell.endpoint.tasks.add(task)
        task.add_done_callback(self._done)
        if self.deadline is not None:
            self._timer = loop.call_at(self.deadline, self._expired)

    def start(self, start: Starter, request: Any) -> None:
        """Have a method answer that needs no coroutine."""
        try:
            self._leave = start(request, self, self)
        except Exception as error:  # what ends the call, not the pass
            self.raised(error)

    def _left(self) -> None:
        """Nobody waits for the answer any more."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def on_reset(self, code: ErrorCode) -> None:
        self._left()
        self._stop_timer()
        if self.tally is not None:
            self.tally.reset()
        if self._packing is not None:
            self._packing.cancel()
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

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._shell.endpoint.tasks.discard(task)
        self._stop_timer()
        if task.cancelled():
            self.raised(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.raised(error)
        else:
            self.returned(task.result())

    # -- the end ------------------------------------------------------------------------------

    def returned(self, response: Reply | None) -> None:
        """The method is done: send its response, if it returned one, and that all is well."""
        self._leave = None
        if self.closed or self.finished:
            return
        try:
            if self._packing is not None:
                response = self._packing.keep(response)
                if self._packing.busy:
                    self._packing.then(partial(self.returned, None))
                    return
            end = responses.OK
            if self._trailing:
                end = responses.end(StatusCode.OK, metadata=self._trailing)
            parts, size = ((), 0) if response is None else self._framed(response)
            beginning = b"" if self.answered else self._beginning()
        except Exception as error:  # what a method returns may not be fit to be sent
            self.raised(error)
            return
        if self.tally is not None:
            self.tally.ended(succeeded=True)
        if response is not None and not self.answered:
            self._outbox.respond(self, beginning, parts, size, end)
        else:
            self._finish(beginning, parts, size, end)
        self._shell.wake()

    def _finish(self, beginning: bytes, parts: Sequence[Buffer], size: int, end: bytes) -> None:
        if not self.answered:
            self._outbox.headers(self, beginning)
        if size:
            self._outbox.body(self, parts, size)
        self._outbox.finish(self, end)

    def raised(self, error: BaseException) -> None:
        """The method has failed."""
        self._leave = None
        if isinstance(error, InferenceError):
            self.fail(StatusError(status_code(error), error.message))
        elif isinstance(error, StatusError):
            self.fail(error)
        elif isinstance(error, asyncio.CancelledError):
            self.fail(StatusError(StatusCode.CANCELLED, "the call was cancelled"))
        else:  # a fault of ours must end as a status, and be seen in the log
            logger.error("%s failed", self._method.name, exc_info=error)
            self.fail(StatusError(StatusCode.INTERNAL, "internal error; see the server's log"))

    def abort(self, status: StatusError) -> None:
        """End with an error, whatever the handler is doing."""
        if self._packing is not None:
            self._packing.cancel()
        self.fail(status)
        self._left()
        if self._task is not None:
            self._task.cancel()

    def fail(self, status: StatusError, *extra: Field) -> None:
        """End with an error, after what was written."""
        if self.closed or self.finished:
            return
        self._stop_timer()  # which would keep the call until then
        if self._packing is not None and self._packing.busy:
            self._packing.then(partial(self.fail, status, *extra))
            return
        if not self.answered and self._initial:
            self._outbox.headers(self, self._beginning())
        end = responses.end(
            status.code,
            sendable(status.message),
            status.details,
            [*self._trailing, *extra],
            only=not self.answered,
        )
        if self.tally is not None:
            self.tally.ended(succeeded=False)
        self._outbox.finish(self, end)
        self._shell.wake()

    # -- messages -----------------------------------------------------------------------------

    def _send(self, parts: list[Buffer], size: int) -> None:
        if not self.answered:
            self._outbox.headers(self, self._beginning())
        self._outbox.body(self, parts, size)
        self._shell.wake()

    def _send_packed(self, parts: list[Buffer], compressed: bool) -> None:
        size = sum(map(len, parts))
        if self.tally is not None:
            self.tally.sent()
        self._send([PREFIX.pack(compressed, size), *parts], PREFIX_SIZE + size)

    def _drained(self, failure: Exception | None) -> None:
        """All that was compressed aside is sent."""
        if failure is not None:
            self.raised(failure)
        self.on_writable()

    def _beginning(self) -> bytes:
        if not self._initial and self._packing is None:
            return responses.BEGIN
        encoding = b"" if self._packing is None else self._packing.encoding
        return responses.begin(self._initial, encoding)

    def _framed(self, message: Reply) -> tuple[list[Buffer], int]:
        """A message behind its prefix, in parts, and the size of all."""
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
        if self.tally is not None:
            self.tally.sent()
        if self._packing is None or not self._packing.wanted:
            return [PREFIX.pack(0, size), *parts], PREFIX_SIZE + size
        packed = self._packing.pack(parts)
        return [PREFIX.pack(1, len(packed)), packed], PREFIX_SIZE + len(packed)
