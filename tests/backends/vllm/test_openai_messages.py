"""What is changed of vLLM's exchanges on their way: the end of failed streams, ids of responses."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from penstock_backends.vllm.openai.application import EventStream, with_response_id

CHUNK = b'data: {"id": "1", "choices": [{"delta": {"content": "data: {\\"error\\": "}}]}\n\n'
ERROR = b'data: {"error": {"message": "gone", "code": 503}}\n\n'
COMPACT = b'data: {"error":{"message":"gone","code":503}}\n\n'
"""As vLLM 0.33 writes it."""
DONE = b"data: [DONE]\n\n"


async def sent(*bodies: bytes) -> bytes:
    """What a client gets of a stream of these events."""
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    stream = EventStream(send)
    await stream.send({"type": "http.response.start", "status": 200})
    for body in bodies:
        await stream.send({"type": "http.response.body", "body": body, "more_body": True})
    await stream.send({"type": "http.response.body", "body": b"", "more_body": False})
    assert len(messages) == len(bodies) + 2
    return b"".join(message.get("body", b"") for message in messages)


@pytest.mark.parametrize(
    "error", [ERROR, b'data: {"error":{"message":"gone"}}\n\n'], ids=["0.32", "0.33"]
)
async def test_error_is_the_last_event(error: bytes) -> None:
    assert await sent(CHUNK, error, DONE) == CHUNK + error


async def test_stream_without_an_error_ends_with_done() -> None:
    assert await sent(CHUNK, DONE) == CHUNK + DONE


def test_response_gets_an_id_with_its_model() -> None:
    first, other = (
        json.loads(with_response_id(b'{"model": "m", "input": "a"} \n', "m")) for _ in range(2)
    )
    assert first.items() >= {"model": "m", "input": "a"}.items()
    assert re.fullmatch("resp_[0-9a-f]{32}_6d", first["request_id"])
    assert first["request_id"] != other["request_id"]


@pytest.mark.parametrize("body", [b'{"request_id": "resp_mine"}', b"[1]", b"", b'{"half": '])
def test_body_that_has_an_id_or_is_no_object_is_left(body: bytes) -> None:
    assert with_response_id(body, "m") == body.rstrip()
