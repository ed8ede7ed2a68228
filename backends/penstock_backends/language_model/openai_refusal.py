"""Refusals in OpenAI's form, of what stands in front of an engine's own application."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def refuse_path(send: Send, path: str) -> None:
    """Answer that the model does not serve this path."""
    error = {
        "message": f"this model does not serve {path[:200]}",
        "type": "not_found_error",
        "param": None,
        "code": None,
    }
    await _answer(send, 404, error)


async def refuse_field(send: Send, name: str, hint: str) -> None:
    """Answer that no request of this route has such a field; `hint` is at the nearest one."""
    error = {
        "message": f"unknown field '{name}'{hint}",
        "type": "invalid_request_error",
        "param": name,
        "code": "unknown_parameter",
    }
    await _answer(send, 400, error)


async def refuse_size(send: Send, name: str, how: str) -> None:
    """Answer that a field is too large; `how` says in which way."""
    error = {
        "message": f"'{name}' {how}",
        "type": "invalid_request_error",
        "param": name,
        "code": "too_large",
    }
    await _answer(send, 400, error)


async def refuse_model(send: Send, message: str) -> None:
    """Answer that there is no such model: the adapter that is named with it is not to be had."""
    error = {
        "message": message,
        "type": "not_found_error",
        "param": "model",
        "code": "model_not_found",
    }
    await _answer(send, 404, error)


def replayed(first: Message, receive: Receive) -> Receive:
    """`receive`, with the message that was read already in front."""
    read: list[Message] = [first]

    async def next_message() -> Message:
        return read.pop() if read else await receive()

    return next_message


async def _answer(send: Send, status: int, error: dict[str, Any]) -> None:
    body = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
