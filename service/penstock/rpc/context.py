"""The seam between RPC logic and transports: what a method may ask of the call it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from google.protobuf.message import Message

from penstock.core.buffer import Buffer
from penstock.rpc.status import StatusCode

Reply: TypeAlias = Message | bytes | list[Buffer]
"""A response message; or its serialized form, whole or in parts, which must not change any more."""

Metadata = Sequence[tuple[str, str | bytes]]
"""Fields in order; keys in lower case. Those that end in `-bin` have bytes, others ASCII text."""


def serialized(reply: Reply) -> bytes:
    """The bytes of a response message."""
    if isinstance(reply, list):
        return b"".join(reply)
    if isinstance(reply, bytes):
        return reply
    data: bytes = reply.SerializeToString()
    return data


class StatusError(Exception):
    """Ends a call with just this status, where no error of the core says it.

    `details` is a serialized `google.rpc.Status`, empty for none; clients get it with the status.
    """

    def __init__(self, code: StatusCode, message: str = "", details: bytes = b"") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


class RpcContext(Protocol):
    """One call, as a transport shows it to the method that serves it.

    A method ends its call with an error by raising an `InferenceError`, which the transport maps
    to a status (`rpc.status`), or a `StatusError`. When the client cancels, or its deadline
    passes, the transport cancels the method.
    """

    @property
    def writes_at_once(self) -> bool:
        """Whether `write_nowait` starts no task, and tells when the client has room for more."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The request's text metadata; keys in lower case, the last of equal keys wins."""

    @property
    def metadata_fields(self) -> Metadata:
        """All of the request's metadata, in order."""

    @property
    def deadline(self) -> float | None:
        """When the client stops waiting, on the event loop's clock; `None` for never."""

    @property
    def peer(self) -> str:
        """Who calls: `ipv4:HOST:PORT`, `ipv6:[HOST]:PORT` or `unix:PATH`."""

    @property
    def request_compressed(self) -> bool | None:
        """Whether the last request message came compressed; `None` if this is not known."""

    def set_initial_metadata(self, metadata: Metadata) -> None:
        """What to send before the first response; has no effect after that."""

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """What to send with the status."""

    def compress_responses(self, wanted: bool) -> None:
        """Whether to compress the responses from now on, if the client can take that."""

    async def write(self, message: Reply) -> None:
        """Send one response message, which may be serialized already.

        Returns when the transport can take another.
        """

    def write_nowait(self, message: Reply) -> bool:
        """Send one response message; whether the transport can take another without waiting.

        Who goes on after `False` without `writable()` lets responses pile up.
        """

    async def writable(self) -> None:
        """Wait until the transport can take another message."""


class CompletionCallbacks(Protocol):
    """Whom a method without a coroutine tells what came of its call: one of these, once."""

    def returned(self, response: Reply | None) -> None:
        """All is well; with `None` after what was written."""

    def raised(self, error: BaseException) -> None:
        """What a coroutine would have raised."""


Starter = Callable[[Any, RpcContext, CompletionCallbacks], Callable[[], None] | None]
Handler = Callable[[Any, RpcContext], Awaitable[Reply | None]]
Unary = Callable[[Any, RpcContext], Awaitable[Reply]]


def method_name(handler: Callable[..., object]) -> str:
    """The name of the RPC that a method serves; compiled ones say their class before it."""
    return handler.__name__.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC: its name and messages, and the function that serves it.

    The `handler` takes a request, or, with `client_streaming`, an iterator of requests. It returns
    the response, or, with `server_streaming`, writes its responses to the context. `parse` makes
    a request of the bytes of its message, which stay as they are; without it, the message class
    does. `eager` says that the handler asks for no current task (as `asyncio.timeout` and
    `TaskGroup` do) before it first waits, so that it may begin without one. `start`, if given,
    does what the handler does without a coroutine: it begins to answer, and returns what to call
    if the client leaves before it has called one of the `CompletionCallbacks`.
    `reserve(size, beginning)` may allocate the buffer of a large message.
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


class _Outcome:
    """What came of a call, for a coroutine to wait for."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()

    def returned(self, response: Reply | None) -> None:
        if not self.future.done():
            self.future.set_result(response)

    def raised(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def coroutine_handler(start: Starter) -> Handler:
    """The handler of a method that has a `start`."""

    async def handler(request: Any, context: RpcContext) -> Reply | None:
        outcome = _Outcome()
        leave = start(request, context, outcome)
        try:
            return await outcome.future
        except asyncio.CancelledError:
            if leave is not None:
                leave()
            raise

    return handler


@dataclass(frozen=True, slots=True)
class Service:
    """A named set of methods; `name` includes the package."""

    name: str
    methods: Sequence[Method]
