"""Large JSON of more values than a request may have, of any form, on every route that reads it."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio

from gateway.serving import LOCAL, FakeServer, connected
from penstock.gateway.json.text import LARGE

INFER = "/v2/models/numbers/infer"
_SETTINGS = replace(LOCAL, max_json_values=1000)
_REFUSED = "the JSON of the request has more than 1000 values"
_PAD = b" " * LARGE


@pytest_asyncio.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with connected(FakeServer(), _SETTINGS) as client:
        yield client


def _tensor(elements: bytes) -> bytes:
    return b'{"inputs":[{"name":"IN","datatype":"BYTES","shape":[1],"data":[%b]}]%b}' % (
        elements,
        _PAD,
    )


@pytest.mark.parametrize("element", [b"{}", b"[]", b'""', b'{"a":1}', b"[[[[[1]]]]]"])
async def test_more_values_than_the_flag_says_are_refused(
    client: httpx.AsyncClient, element: bytes
) -> None:
    answer = await client.post(INFER, content=_tensor(b",".join([element] * 5000)))
    assert answer.status_code == 400
    assert _REFUSED in answer.json()["error"]
    assert "Use --http-max-json-values to increase the limit" in answer.json()["error"]


async def test_what_gzip_unfolds_to_is_counted(client: httpx.AsyncClient) -> None:
    body = gzip.compress(_tensor(b",".join([b"{}"] * 5000)))
    answer = await client.post(INFER, content=body, headers={"content-encoding": "gzip"})
    assert (answer.status_code, _REFUSED in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize("path", ["/v2/models/numbers/generate", "/v2/repository/models/m/load"])
async def test_values_are_counted_on_every_route(client: httpx.AsyncClient, path: str) -> None:
    body = b'{"IN":[%b]%b}' % (b",".join([b"{}"] * 5000), _PAD)
    answer = await client.post(path, content=body)
    assert _REFUSED in answer.json()["error"]


async def test_half_a_megabyte_of_objects_is_counted_as_what_is_larger(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.post(INFER, content=b"[%b]" % b",".join([b"{}"] * 30_000))
    assert _REFUSED in answer.json()["error"]


async def test_numbers_are_as_many_as_the_body_holds(client: httpx.AsyncClient) -> None:
    count = LARGE // 2
    numbers = {"name": "IN", "datatype": "FP32", "shape": [count], "data": [1] * count}
    answer = await client.post(INFER, json={"inputs": [numbers]})
    assert answer.status_code == 200
    assert len(answer.json()["outputs"][0]["data"]) == count
