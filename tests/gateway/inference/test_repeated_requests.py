"""Requests whose JSON repeats; large ones, whose tensors lie where model processes map them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio

from gateway.serving import FakeServer, connected
from penstock.settings import HttpSettings

_PATH = "/v2/models/numbers/infer"
_FORWARDING = HttpSettings(address="127.0.0.1", port=0, header_forward_pattern="x-.*")


@pytest_asyncio.fixture
async def client(server: FakeServer) -> AsyncIterator[httpx.AsyncClient]:
    async with connected(server, _FORWARDING) as client:
        yield client


async def _ask(
    client: httpx.AsyncClient, values: Any, headers: dict[str, str] | None = None, **more: Any
) -> tuple[int, Any]:
    """The status, and what comes back in binary form."""
    numbers = np.asarray(values, np.float32)
    item: dict[str, Any] = {"name": "IN", "datatype": "FP32", "shape": [len(numbers)]}
    item["parameters"] = {"binary_data_size": numbers.nbytes}
    parameters = {"binary_data_output": True, **more.pop("parameters", {})}
    text = json.dumps({"inputs": [item], "parameters": parameters, **more}).encode()
    length = {"inference-header-content-length": str(len(text)), **(headers or {})}
    answer = await client.post(_PATH, content=text + numbers.tobytes(), headers=length)
    if answer.status_code != 200:
        return answer.status_code, answer.json()
    at = int(answer.headers["inference-header-content-length"])
    return 200, np.frombuffer(answer.content[at:], np.float32).tolist()


async def test_a_repeated_request_differs_in_its_numbers_alone(
    client: httpx.AsyncClient, server: FakeServer
) -> None:
    for first in range(5):
        assert await _ask(client, [first, 2.0]) == (200, [first, 2.0])
    templates = [request.template for request in server.requests]
    assert templates[:2] == [None, None]
    assert templates[2] is not None
    assert templates[2:] == [templates[2]] * 3


@pytest.mark.parametrize(
    "more", [{"id": "7"}, {"parameters": {"p": 1}}, {"parameters": {"priority": 1}}]
)
async def test_what_may_differ_is_always_decoded(
    client: httpx.AsyncClient, server: FakeServer, more: dict[str, Any]
) -> None:
    for _ in range(4):
        assert await _ask(client, [1.0], **more) == (200, [1.0])
    assert {request.template for request in server.requests} == {None}


async def test_forwarded_headers_are_those_of_each_request(
    client: httpx.AsyncClient, server: FakeServer
) -> None:
    for number in range(4):
        await _ask(client, [1.0], {"x-number": str(number)})
    await _ask(client, [1.0])
    assert [request.parameters.get("x-number") for request in server.requests] == [
        *"0123",
        None,
    ]
    assert {request.template for request in server.requests[:4]} == {None}
    assert server.requests[4].template is not None


async def test_other_bytes_behind_a_repeated_json_are_refused_as_the_first_time(
    client: httpx.AsyncClient,
) -> None:
    item = {"name": "IN", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}
    text = json.dumps({"inputs": [item]}).encode()
    headers = {"inference-header-content-length": str(len(text))}
    answers = [
        (await client.post(_PATH, content=text + bytes(size), headers=headers)).status_code
        for size in (8, 8, 8, 7, 9, 8)
    ]
    assert answers == [200, 200, 200, 400, 400, 200]


@pytest.mark.parametrize("count", [20_000, 1_000_000], ids=["one read", "many reads"])
async def test_large_tensors_lie_in_memory_that_is_shared(
    client: httpx.AsyncClient, server: FakeServer, count: int
) -> None:
    values = np.arange(count, dtype=np.float32)
    for _ in range(3):
        assert await _ask(client, values) == (200, values.tolist())
    for request in server.requests:
        place = request.inputs["IN"].shared
        assert place is not None
        assert place.region.file is not None


async def test_a_large_body_that_stops_half_way_harms_nobody(client: httpx.AsyncClient) -> None:
    async def half() -> AsyncIterator[bytes]:
        yield b"{" + bytes(100_000)
        raise ConnectionError

    headers = {"inference-header-content-length": "50", "content-length": "4000000"}
    for _ in range(3):
        with pytest.raises(ConnectionError):
            await client.post(_PATH, content=half(), headers=headers)
    assert await _ask(client, [3.0]) == (200, [3.0])


async def _ask_in_json(
    client: httpx.AsyncClient, data: str, datatype: str = "FP32"
) -> tuple[int, str]:
    """The status and the text of an answer; `data` is the text of a list of two elements."""
    item = f'{{"name":"IN","datatype":"{datatype}","shape":[2],"data":{data}}}'
    answer = await client.post(_PATH, content=f'{{"inputs":[{item}]}}')
    return answer.status_code, answer.text


_LISTS = [
    ("FP32", "[1,-2.5]"),
    ("FP32", "[1e39,-1e-60]"),
    ("FP32", "[1e400,1]"),
    ("FP32", "[NaN,Infinity]"),
    ("FP32", "[true,1]"),
    ("FP32", "[1]"),
    ("FP32", "[1,2,3]"),
    ("FP32", "[[1],[2]]"),
    ("FP32", "[]"),
    ("FP32", "[1,]"),
    ("FP32", "7"),
    ("FP64", f"[{2**63 + 1},0.1]"),
    ("FP64", f"[1{'0' * 400},0]"),
    ("INT8", "[127,-129]"),
    ("INT32", "[1,2.0]"),
    ("INT32", "[1,true]"),
    ("INT64", f"[{2**63},{-(2**63)}]"),
    ("UINT8", "[256,0]"),
    ("UINT64", f"[{2**64 - 1},0]"),
    ("UINT64", "[-1,0]"),
    ("UINT64", f"[{2**64},0]"),
    ("BOOL", "[true,false]"),
    ("BOOL", "[1,0]"),
    ("BYTES", r'["a]","\u00e9\n\"data\":[1]"]'),
    ("BYTES", r'["\ud800","b"]'),
    ("BYTES", '["",1]'),
    ("FP16", "[1,2]"),
]


@pytest.mark.parametrize(("datatype", "data"), _LISTS)
async def test_json_that_repeats_is_answered_as_the_first_time(
    client: httpx.AsyncClient, datatype: str, data: str
) -> None:
    usual = {"BOOL": "[false,true]", "BYTES": '["x","y"]'}.get(datatype, "[3,4]")
    first = await _ask_in_json(client, data, datatype)
    for _ in range(3):
        await _ask_in_json(client, usual, datatype)
    assert await _ask_in_json(client, data, datatype) == first


async def test_repeated_json_of_strings_is_answered_with_its_own(
    client: httpx.AsyncClient, server: FakeServer
) -> None:
    """Its requests have no template, which stands for sizes too."""
    for values in (["a", "b"], ["", "xyz"], ["c", "\u00e9"], ["d" * 40, "e"]):
        status, text = await _ask_in_json(client, json.dumps(values), "BYTES")
        assert (status, json.loads(text)["outputs"][0]["data"]) == (200, values)
    assert {request.template for request in server.requests} == {None}


async def test_repeated_json_differs_in_its_lists_alone(
    client: httpx.AsyncClient, server: FakeServer
) -> None:
    for number in range(4):
        status, text = await _ask_in_json(client, f"[{number}, 1]")
        assert (status, json.loads(text)["outputs"][0]["data"]) == (200, [number, 1])
    templates = [request.template for request in server.requests]
    assert templates[:2] == [None, None]
    assert templates[2] is not None
    assert templates[2] == templates[3]


@pytest.mark.parametrize(
    "inputs",
    [
        '{"name":"IN","datatype":"FP32","shape":[1],"data":[%d],"data":[9]}',
        '{"name":"IN","datatype":"FP32","shape":[1],"\\u0064ata":[%d],"x\\"data":[9]}',
        '{"name":"IN","datatype":"FP32","shape":[1],"data":[%d]}],"more":[{"data":[9]}',
        '{"name":"IN","datatype":"FP32","shape":[1],"data":[%d],"parameters":{"data":[9]}}',
    ],
    ids=["twice", "escaped", "elsewhere", "a parameter"],
)
async def test_a_list_elsewhere_is_never_taken_for_that_of_an_input(
    client: httpx.AsyncClient, inputs: str
) -> None:
    for number in range(4):
        answer = await client.post(_PATH, content='{"inputs":[%s]}' % (inputs % number))
        assert answer.json()["outputs"][-1]["data"] == [number]
