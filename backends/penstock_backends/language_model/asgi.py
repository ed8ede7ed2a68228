"""ASGI messages of OpenAI applications."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]


async def send_json(
    send: Send, body: bytes, status: int = 200, headers: Iterable[Header] = ()
) -> None:
    """Answer with a whole JSON document."""
    length = (b"content-length", b"%d" % len(body))
    fields = [(b"content-type", b"application/json"), length, *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


def replayed(first: Message, receive: Receive) -> Receive:
    """`receive`, with the message that was read already in front."""
    read: list[Message] = [first]

    async def next_message() -> Message:
        return read.pop() if read else await receive()

    return next_message
