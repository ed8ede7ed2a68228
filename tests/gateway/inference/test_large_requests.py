"""Large JSON requests are parsed without blocking others."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from fakes.loops import turns
from gateway.serving import received_call
from harness.posix_memory import posix_memory
from penstock.core.errors import InternalError, NotFoundError
from penstock.core.request import InferenceRequest
from penstock.core.request_limits import MOST_PARAMETERS
from penstock.gateway.body import RequestBody
from penstock.gateway.connections.http_call import ClientDisconnectError
from penstock.gateway.inference.codec import OutputEncoding, read_request
from penstock.gateway.json.helper import JsonHelper
from penstock.gateway.json.text import LARGE
from penstock.gateway.json_bodies import JsonBodies
from penstock.shared_memory.registry import Regions

_COUNT = LARGE
_LIMIT = 1 << 30


def _body(data: Any = 1.5, **more: Any) -> bytes:
    item = {"name": "IN", "datatype": "FP32", "shape": [_COUNT], "data": [data] * _COUNT}
    return json.dumps({"inputs": [item], **more}).encode()


async def _read(
    body: bytes, regions: Regions | None = None, helper: JsonHelper | None = None
) -> tuple[InferenceRequest, OutputEncoding]:
    received, helper = RequestBody(received_call(body)), helper or JsonHelper()
    bodies = JsonBodies(_LIMIT, helper)
    try:
        return await read_request("m", "1", received, len(body), bodies, regions or Regions())
    finally:
        helper.close()


async def test_body_of_a_client_that_has_gone_is_dropped_before_its_turn(tmp_path: Path) -> None:
    body, helper, gate = _body(), JsonHelper(), tmp_path / "gate"
    os.mkfifo(gate)
    ahead = asyncio.create_task(helper.run(len(body), Path.read_text, gate))
    call = received_call(body)
    reading = asyncio.create_task(JsonBodies(_LIMIT, helper).read(call, len))
    await turns(20)
    call.closed = True
    call.on_closed()
    with pytest.raises(ClientDisconnectError):
        await asyncio.wait_for(reading, 5)
    await asyncio.to_thread(gate.write_text, "opened")
    assert await ahead == "opened"
    helper.close()


async def test_others_have_turns_while_a_large_request_is_read(tmp_path: Path) -> None:
    """By a process, which comes to it when the test lets it."""
    body, helper, gate = _body(), JsonHelper(), tmp_path / "gate"
    os.mkfifo(gate)
    ahead = asyncio.create_task(helper.run(len(body), Path.read_text, gate))
    reading = asyncio.create_task(_read(body, helper=helper))
    await turns(20)
    waited = not reading.done()
    await asyncio.to_thread(gate.write_text, "opened")
    assert waited
    assert await ahead
    request, _ = await reading
    assert request.inputs["IN"].numpy().size == _COUNT


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


async def test_tensors_of_a_large_request_may_lie_in_memory_that_it_names() -> None:
    with posix_memory() as memory:
        regions = Regions(allowed=True)
        regions.register_system("r", memory.key, 0, 64)
        memory.data[:5] = b"\1\0\0\0x"
        place = {"shared_memory_region": "r", "shared_memory_byte_size": 5}
        text = {"name": "TEXT", "datatype": "BYTES", "shape": [1], "parameters": place}
        place = {**place, "shared_memory_offset": 8, "shared_memory_byte_size": 8}
        pair = {"name": "PAIR", "datatype": "FP32", "shape": [2], "parameters": place}
        numbers = json.loads(_body())["inputs"]
        outputs = [{"name": "OUT", "parameters": {**place, "shared_memory_offset": 16}}]
        body = json.dumps({"inputs": [text, pair, *numbers], "outputs": outputs}).encode()
        request, _ = await _read(body, regions)
        assert list(request.inputs) == ["TEXT", "PAIR", "IN"]
        assert request.inputs["TEXT"].numpy().tolist() == [b"x"]
        assert request.inputs["PAIR"].numpy().tolist() == [0.0, 0.0]
        assert request.inputs["IN"].numpy().size == _COUNT
        place_of_output = request.output_places["OUT"]
        assert (place_of_output.region.name, place_of_output.offset) == ("r", 16)
        place_of_output.write(b"12345678")
        assert bytes(memory.data[16:24]) == b"12345678"
        regions.release(request)
        regions.close()


async def test_binary_tensors_may_follow_large_json() -> None:
    binary: dict[str, Any] = {"name": "B", "datatype": "UINT8", "shape": [3]}
    binary["parameters"] = {"binary_data_size": 3}
    text = json.dumps({"inputs": [*json.loads(_body())["inputs"], binary]}).encode()
    helper = JsonHelper()
    received, bodies = RequestBody(received_call(text + b"abc")), JsonBodies(_LIMIT, helper)
    request, _ = await read_request("m", "1", received, len(text), bodies, Regions())
    helper.close()
    assert bytes(request.inputs["B"].buffer) == b"abc"


@pytest.mark.parametrize("path", ["infer", "generate"])
async def test_parameters_have_a_bound(client: httpx.AsyncClient, path: str) -> None:
    """They travel to the model in one piece."""
    parameters = {f"key{n}": n for n in range(MOST_PARAMETERS + 1)}
    item = {"name": "IN", "datatype": "FP32", "shape": [1], "data": [1.0]}
    body = {"inputs": [item], "parameters": parameters} if path == "infer" else {"IN": 1.0}
    answer = await client.post(f"/v2/models/numbers/{path}", json=body | {"parameters": parameters})
    assert answer.status_code == 400
    assert answer.json() == {
        "error": f"request has {MOST_PARAMETERS + 1} parameters, which exceeds the maximum allowed"
        f" value of {MOST_PARAMETERS}"
    }


@pytest.mark.interpreted("it takes a function away, which compiled callers still have")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/models/numbers/infer", _body()),
        ("/v2/models/numbers/generate", b'{"IN":[' + b"1.5," * _COUNT + b"1]}"),
        ("/v2/models/numbers/infer", b'{"x":[' + b"{}," * 30_000 + b"1]}"),
        ("/v2/repository/models/m/load", b'{"x":[' + b"1.5," * _COUNT + b"1]}"),
    ],
)
async def test_large_body_is_not_parsed_by_the_loop(
    client: httpx.AsyncClient, path: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, run = list[int](), JsonHelper.run

    async def spy(helper: JsonHelper, size: int, *call: Any) -> Any:
        sizes.append(size)
        return await run(helper, size, *call)

    monkeypatch.setattr(JsonHelper, "run", spy)
    await client.post(path, content=body)
    assert sizes == [len(body)]


async def test_large_answer_of_generate_is_that_of_a_small_one(client: httpx.AsyncClient) -> None:
    values = [n / 4 for n in range(40_000)]
    answer = await client.post("/v2/models/numbers/generate", json={"IN": values, "id": "7"})
    assert answer.json() == {
        "OUT": values,
        "id": "7",
        "model_name": "numbers",
        "model_version": "1",
    }
    assert list(answer.json()) == ["OUT", "id", "model_name", "model_version"]
