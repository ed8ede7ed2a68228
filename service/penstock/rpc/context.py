"""The interface between RPC handlers and transports: methods, and the context of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from google.protobuf.message import DecodeError, Message

from penstock.access.policy import Permit
from penstock.core.buffer import Buffer
from penstock.core.errors import InternalError
from penstock.core.turns import Sliced
from penstock.rpc.status import StatusCode

LARGE = 8 << 10
"""Bytes of a request message from which parsing it may take several turns of the event loop."""

Reply: TypeAlias = Message | bytes | list[Buffer]
"""A response message; or its serialized bytes, whole or in parts, which must not change."""

Metadata = Sequence[tuple[str, str | bytes]]
"""Fields in order; keys are in lower case. Values of `-bin` keys are bytes, others ASCII text."""


def serialized(reply: Reply) -> bytes:
    """Serialize a response message to bytes."""
    if isinstance(reply, list):
        return b"".join(reply)
    if isinstance(reply, bytes):
        return reply
    data: bytes = reply.SerializeToString()
    return data


class StatusError(Exception):
    """Ends a call with a gRPC status for which the core has no error class.

    `details` is a serialized `google.rpc.Status` for the client, empty for none.
    """

    def __init__(self, code: StatusCode, message: str = "", details: bytes = b"") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


class Asking(Protocol):
    """A call before a message of it is read: who makes it.

    `permit` is that of an access policy which was asked for it, and else `None`.
    """

    permit: Permit | None

    @property
    def metadata(self) -> Mapping[str, str]:
        """The request's text metadata (`protocol.credentials.text_metadata`)."""

    @property
    def certificate(self) -> Sequence[str]:
        """The names in the client's certificate, which TLS has verified."""


class RpcContext(Asking, Protocol):
    """One call of a client, as the handler of its method sees it.

    A handler ends its call with an error by raising an `InferenceError`, which the transport maps
    to a status (`rpc.status`), or a `StatusError`. On cancellation by the client, or after its
    deadline, the transport cancels the handler. `trace_id` is set where the call is traced, and
    otherwise 0; of a stream it is that of the last request. No handler of the server uses `peer`,
    `request_compressed`, `compress_responses` or `set_initial_metadata`: the interop tests do.
    """

    trace_id: int

    @property
    def writes_at_once(self) -> bool:
        """Whether `write_nowait` starts no task, and reports flow control by its result."""

    @property
    def metadata_fields(self) -> Metadata:
        """All of the request's metadata, in order."""

    @property
    def authority(self) -> str:
        """The server's name and port as the client has them; empty where that is not known."""

    @property
    def deadline(self) -> float | None:
        """The client's deadline in seconds on the event loop's clock; `None` for none."""

    @property
    def opened(self) -> int:
        """When the call began, in nanoseconds of `time.monotonic_ns`."""

    @property
    def peer(self) -> str:
        """The address of the client: `ipv4:HOST:PORT`, `ipv6:[HOST]:PORT` or `unix:PATH`."""

    @property
    def request_compressed(self) -> bool | None:
        """Whether the last request message was compressed; `None` if this is not known."""

    def set_initial_metadata(self, metadata: Metadata) -> None:
        """Set the metadata sent before the first response; has no effect after it."""

    async def begin(self) -> None:
        """Send the initial metadata now, where the first response may be long in coming."""

    def add_trailing_metadata(self, metadata: Metadata) -> None:
        """Add to the metadata sent with the status."""

    def compress_responses(self, wanted: bool) -> None:
        """Switch compression of the next responses on or off, if the client accepts it."""

    async def write(self, message: Reply) -> None:
        """Send one response message; returns when the transport can take another."""

    def write_nowait(self, message: Reply) -> bool:
        """Send one response message; returns whether the transport can take another.

        After `False`, await `writable()` before the next one: responses are buffered without limit.
        """

    async def writable(self) -> None:
        """Wait until the transport can take another message."""


class CompletionCallbacks(Protocol):
    """Completion callbacks of a handler without a coroutine; exactly one is called, once."""

    def returned(self, response: Reply | None) -> None:
        """The call succeeded; `None` if all responses were written before."""

    def raised(self, error: BaseException) -> None:
        """The call failed with an error that a coroutine would have raised."""


Starter = Callable[[Any, RpcContext, CompletionCallbacks], Callable[[], None] | None]
Handler = Callable[[Any, RpcContext], Awaitable[Reply | None]]
Unary = Callable[[Any, RpcContext], Awaitable[Reply]]


def method_name(handler: Callable[..., object]) -> str:
    """The name of the RPC of a handler; compiled methods have their class in front of it."""
    return handler.__name__.rpartition(".")[2]


@dataclass(slots=True)
class Method:
    """One RPC: its name, its message classes, and its handler.

    `handler` and `start` may be exchanged while it serves, for calls that begin later.

    `handler`: takes a request, or, with `client_streaming`, an iterator of requests. It returns
    the response, or, with `server_streaming`, writes its responses to the context.
    `parse`: parses the bytes of a request message, which do not change; by default the message
    class does. It may return the rest of its work, `Sliced`, for messages of `LARGE` bytes or more.
    `unbounded`: its requests carry tensors or files, and have the limit of these.
    `endless`: it answers until its client goes.
    `admits`: whether a call may be made, which may note its permit; if not, `handler` refuses it,
    without looking at requests. `None` for a method that is not restricted.
    `eager`: the handler needs no current task (as `asyncio.timeout` and `TaskGroup` do) before its
    first await, so that it may be started without one.
    `start`: an alternative to `handler` without a coroutine: begins to answer, and returns a
    callback to cancel it, which is called if the client goes before a completion callback was.
    `reserve(size, beginning)`: may allocate the buffer of a large message.
    """

    name: str
    request: type[Message]
    response: type[Message]
    handler: Handler
    client_streaming: bool = False
    server_streaming: bool = False
    parse: Callable[[Buffer], Any] | None = None
    eager: bool = False
    start: Starter | None = None
    reserve: Callable[[int, memoryview], memoryview | None] | None = None
    unbounded: bool = False
    endless: bool = False
    admits: Callable[[Asking], bool] | None = None


def parsed(method: Method, data: Buffer) -> Any:
    """The request in these bytes, or `Sliced`. Raises the error that ends the call."""
    try:
        return (method.parse or method.request.FromString)(data)
    except DecodeError as error:
        raise InternalError("Unable to parse request") from error


async def parsed_in_turns(method: Method, data: Buffer) -> Any:
    """As `parsed`, after the other steps of a large message."""
    request = parsed(method, data)
    return await finished_in_turns(request) if isinstance(request, Sliced) else request


async def finished_in_turns(request: Sliced[Any]) -> Any:
    """The request whose first step was not its last. Raises the error that ends the call."""
    try:
        return await request.result()
    except DecodeError as error:
        raise InternalError("Unable to parse request") from error


class _FutureResult:
    """Completion callbacks that set a future."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()

    def returned(self, response: Reply | None) -> None:
        if not self.future.done():
            self.future.set_result(response)

    def raised(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def coroutine_handler(start: Starter) -> Handler:
    """A coroutine handler that calls `start`, for transports without completion callbacks."""

    async def handler(request: Any, context: RpcContext) -> Reply | None:
        result = _FutureResult()
        cancel = start(request, context, result)
        try:
            return await result.future
        except asyncio.CancelledError:
            if cancel is not None:
                cancel()
            raise

    return handler


@dataclass(frozen=True, slots=True)
class Service:
    """A gRPC service; `name` includes the package."""

    name: str
    methods: Sequence[Method]
