"""HTTP exchanges that a model answers by itself, by an ASGI application of its backend."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.core.flow_control import Window

Headers = tuple[tuple[str, str], ...]
"""Names, in small letters, and values; a name may come several times."""

Message = MutableMapping[str, Any]
AsgiApp = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]
"""An ASGI 3 application."""

ASGI_EXTENSION = "penstock"
"""The ASGI extension by which an application learns of the request as the server knows it.

`scope["extensions"]["penstock"]` has `request`, the `InferenceRequest` of the exchange, whose
`scope.report_usage` is to be told of tokens where it is set, and `infer`, which gives the model
itself a request and returns the `ResponseStream` of its responses: for applications over tensors.
"""

ASGI_DESCRIPTION = "/openapi.json"
"""The path at which the server asks an application, by GET, for its own OpenAPI document."""

LARGEST_PIECE = 8 * 1024
"""Bytes of a body that travel in one part, so that few of them wait for a slow reader."""

WINDOW = Window(responses=64, size=24 * 1024)
"""Flow control of the parts of an answer: with one more piece, 32 KiB.

As much again may have left its window and wait in front of a socket.
"""


class HttpHead(NamedTuple):
    """Status and headers of an answer."""

    status: int
    headers: Headers = ()


@dataclass(frozen=True, slots=True, eq=False)
class HttpExchange:
    """A request over HTTP, as the application of a model gets it.

    `body` is all of it. `query` is without the question mark.
    """

    method: str
    path: str
    query: str = ""
    headers: Headers = ()
    body: bytes = b""
