"""Large JSON requests are parsed without blocking others."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from starlette.types import Message

from penstock.core.errors import InternalError, NotFoundError
from penstock.core.request import InferenceRequest
from penstock.gateway.body import RequestBody
from penstock.gateway.codec import OutputEncoding, read_request
from penstock.gateway.json.text import LARGE
from penstock.shared_memory.registry import Regions

_COUNT = LARGE // 4
_LIMIT = 1 << 30


def _body(data: Any = 1.5, **more: Any) -> bytes:
    item = {"name": "IN", "datatype": "FP32", "shape": [_COUNT], "data": [data] * _COUNT}
    return json.dumps({"inputs": [item], **more}).encode()


async def _read(
    body: bytes, regions: Regions | None = None
) -> tuple[InferenceRequest, OutputEncoding]:
    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    received = RequestBody(receive, len(body))
    return await read_request("m", "1", received, len(body), _LIMIT, regions or Regions())


async def test_others_have_turns_while_a_large_request_is_read() -> None:
    reading, turns = asyncio.create_task(_read(_body())), 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10


async def test_a_large_request_decodes_as_a_small_one() -> None:
    outputs = [{"name": "OUT", "parameters": {"binary_data": True}}]
    request, form = await _read(_body(id="7", outputs=outputs, parameters={"priority": 3}))
    expected = np.full(_COUNT, 1.5, np.float32)
    np.testing.assert_array_equal(request.inputs["IN"].numpy(), expected)
    assert (request.id, request.priority, request.requested_outputs) == ("7", 3, ("OUT",))
    assert form.is_binary("OUT")


async def test_errors_in_a_large_request_are_reported() -> None:
    with pytest.raises(InternalError, match="attempt to access JSON non-number as double"):
        await _read(_body("x"))


@pytest.mark.parametrize("key", ["shared_memory_region", "shared_memory_regio\\u006e"])
async def test_memory_that_a_large_request_names_is_looked_up(key: str) -> None:
    place = f'{{"name": "OUT", "parameters": {{"{key}": "r", "shared_memory_byte_size": 8}}}}'
    body = _body()[:-1] + f', "outputs": [{place}]}}'.encode()
    with pytest.raises(NotFoundError, match="Unable to find shared memory region: 'r'"):
        await _read(body)
