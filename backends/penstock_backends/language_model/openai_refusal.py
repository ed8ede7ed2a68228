"""Refusals in OpenAI's form, of what stands in front of an engine's own application."""

from __future__ import annotations

import json

from penstock_backends.language_model.asgi import Send, send_json


async def refuse_path(send: Send, path: str) -> None:
    """Answer that the model does not serve this path."""
    message = f"this model does not serve {path[:200]}"
    await _refuse(send, 404, message, "not_found_error")


async def refuse_field(send: Send, name: str, hint: str) -> None:
    """Answer that no request of this route has such a field; `hint` is at the nearest one."""
    message = f"unknown field '{name}'{hint}"
    await _refuse(send, 400, message, "invalid_request_error", name, "unknown_parameter")


async def refuse_body(send: Send, why: str) -> None:
    """Answer that a body is not JSON."""
    message = f"the body is not JSON: {why}"
    await _refuse(send, 400, message, "invalid_request_error", None, "invalid_json")


async def refuse_size(send: Send, name: str, how: str) -> None:
    """Answer that a field is too large; `how` is a verb phrase with the limit."""
    await _refuse(send, 400, f"'{name}' {how}", "invalid_request_error", name, "too_large")


async def refuse_model(send: Send, message: str) -> None:
    """Answer that a model does not exist: the adapter that its name has cannot be used."""
    await _refuse(send, 404, message, "not_found_error", "model", "model_not_found")


async def _refuse(
    send: Send,
    status: int,
    message: str,
    kind: str,
    param: str | None = None,
    code: str | None = None,
) -> None:
    error = {"message": message, "type": kind, "param": param, "code": code}
    await send_json(send, json.dumps({"error": error}).encode(), status)
