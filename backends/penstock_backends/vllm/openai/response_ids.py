"""Ids of responses that vLLM stores: each holds its model's name, which requests for it lack."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

PATH: Final = "/v1/responses"
_MEMBER: Final = b'"request_id"'


def with_response_id(body: bytes, model: str) -> bytes:
    """The object with a member more, of which vLLM makes the response's id.

    A request with an id of its own keeps it.
    """
    body = body.rstrip()
    if _MEMBER in body or not body.endswith(b"}"):
        return body
    return b'%b,%b:"%b"}' % (body[:-1], _MEMBER, _response_id(model).encode())


def _response_id(model: str) -> str:
    """A new id; the server's door reads the model of its last part."""
    return f"resp_{uuid4().hex}_{model.encode().hex()}"
