"""The seam between RPC logic and transports: what a method may ask of the call it serves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf.message import Message


class RpcContext(Protocol):
    """One call, as a transport shows it to the method that serves it.

    A method ends its call with an error by raising an `InferenceError`; the transport maps it to
    a status (`rpc.status`). When the client cancels, or its deadline passes, the transport
    cancels the method.
    """

    @property
    def metadata(self) -> Mapping[str, str]:
        """The request's text metadata; keys in lower case, the last of equal keys wins."""

    @property
    def deadline(self) -> float | None:
        """When the client stops waiting, on the event loop's clock; `None` for never."""

    async def write(self, message: Message) -> None:
        """Send one response message; returns when the transport can take another."""


Unary = Callable[[Any, RpcContext], Awaitable[Message]]
Streaming = Callable[[AsyncIterator[Any], RpcContext], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC: its name and messages, and the function that serves it.

    A unary `handler` takes a request and returns the response. A streaming one takes an iterator
    of requests and writes its responses to the context.
    """

    name: str
    request: type[Message]
    response: type[Message]
    handler: Unary | Streaming
    streaming: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """A named set of methods; `name` includes the package."""

    name: str
    methods: Sequence[Method]
