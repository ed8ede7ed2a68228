"""The limits on the size of inference requests: what counts against them, and what does not."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from gateway.serving import FakeServer, connected
from harness.raw_clients import hang_up
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway
from penstock.gateway.body import LARGEST
from penstock.settings import HttpSettings

_PATH = "/v2/models/numbers/infer"
_LIMIT = 1000
_SETTINGS = HttpSettings(address="127.0.0.1", port=0, max_input_size=_LIMIT)
_LENGTH = "inference-header-content-length"


@pytest.fixture
async def client(server: FakeServer) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that takes 1,000 bytes."""
    async with connected(server, _SETTINGS) as client:
        yield client


def _json(**fields: Any) -> bytes:
    item = {"name": "IN", "datatype": "FP32", "shape": [2]}
    return json.dumps({"inputs": [item | fields]}).encode()


def _binary(size: int, padded_to: int = 0) -> tuple[bytes, dict[str, str]]:
    """The JSON, padded with spaces, of a binary tensor of `size` bytes; the header for it."""
    text = _json(shape=[size // 4], parameters={"binary_data_size": size}).ljust(padded_to)
    return text, {_LENGTH: str(len(text))}


def _exceeds(what: str, size: int) -> dict[str, str]:
    return {
        "error": f"{what} of {size} bytes exceeds the maximum allowed value of {_LIMIT} bytes."
        " Use --http-max-input-size to increase the limit."
    }


async def _chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@pytest.mark.contract("H-36")
@pytest.mark.parametrize("chunked", [False, True])
async def test_binary_tensors_behind_the_json_do_not_count(
    client: httpx.AsyncClient, server: FakeServer, chunked: bool
) -> None:
    text, headers = _binary(100 * _LIMIT, padded_to=_LIMIT)
    data = bytes(100 * _LIMIT)
    body = _chunks(text, data[:70_000], data[70_000:]) if chunked else text + data
    answer = await client.post(_PATH, content=body, headers=headers)
    assert answer.status_code == 200
    assert server.requests[0].inputs["IN"].nbytes == 100 * _LIMIT


@pytest.mark.contract("N-05")
@pytest.mark.parametrize("end", ["generate", "generate_stream"])
@pytest.mark.parametrize("nested", [{"parameters": {"p": "v"}}, {"more": {"IN": [1.0]}}])
async def test_nested_fields_of_generate_count(
    client: httpx.AsyncClient, server: FakeServer, end: str, nested: dict[str, Any]
) -> None:
    text = json.dumps({"IN": 1.0, **nested})
    body = text.replace(": {", ": {" + " " * (_LIMIT + 1 - len(text)), 1)
    answer = await client.post(f"/v2/models/numbers/{end}", content=body.encode())
    refusal = _exceeds("request content length", _LIMIT + 1)
    assert (answer.status_code, answer.json()) == (400, refusal)
    assert not server.requests


@pytest.mark.contract("H-36")
@pytest.mark.parametrize("chunked", [False, True])
async def test_json_before_binary_tensors_counts(client: httpx.AsyncClient, chunked: bool) -> None:
    text, headers = _binary(8, padded_to=_LIMIT + 1)
    body = _chunks(text, bytes(8)) if chunked else text + bytes(8)
    answer = await client.post(_PATH, content=body, headers=headers)
    assert (answer.status_code, answer.json()) == (400, _exceeds("request JSON size", _LIMIT + 1))


@pytest.mark.contract("H-36", "N-15")
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 400)])
async def test_body_that_is_json_counts(
    client: httpx.AsyncClient, chunked: bool, more: int, status: int
) -> None:
    text = _json(data=[1, 2]).ljust(_LIMIT + more)
    answer = await client.post(_PATH, content=_chunks(text) if chunked else text)
    assert answer.status_code == status
    assert status == 200 or answer.json() == _exceeds("request JSON size", _LIMIT + 1)


@pytest.mark.contract("H-36")
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("size", "status"), [(_LIMIT, 200), (_LIMIT + 4, 400)])
async def test_raw_body_counts(
    client: httpx.AsyncClient, chunked: bool, size: int, status: int
) -> None:
    body = _chunks(bytes(size)) if chunked else bytes(size)
    answer = await client.post(_PATH, content=body, headers={_LENGTH: "0"})
    assert answer.status_code == status
    assert status == 200 or answer.json() == _exceeds("request content length", size)


@pytest.mark.contract("H-36", "HI-17")
@pytest.mark.parametrize(("size", "status"), [(400, 200), (4000, 400)])
async def test_what_is_unpacked_counts_binary_tensors_too(
    client: httpx.AsyncClient, size: int, status: int
) -> None:
    text, headers = _binary(size)
    packed = gzip.compress(text + bytes(size))
    headers |= {"content-encoding": "gzip"}
    answer = await client.post(_PATH, content=packed, headers=headers)
    assert answer.status_code == status
    assert status == 200 or "decompressed request size exceeds" in answer.json()["error"]


@pytest.mark.contract("HI-08")
@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (LARGEST - 1000, "unexpected additional input data for model 'numbers'"),
        (
            99_998,
            "unexpected size for input 'IN', expecting 2 additional bytes for model 'numbers'",
        ),
    ],
)
async def test_bytes_that_no_tensor_claims_are_not_waited_for(
    server: FakeServer, declared: int, text: str
) -> None:
    """The answer comes while the client has only sent the JSON of its 2 GiB, or 100 kB."""
    header, fields = _binary(100_000)
    answer = await _answer_to_head(server, header, fields, len(header) + declared)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert text in answer.decode()


@pytest.mark.contract("H-36")
async def test_body_of_more_than_2_gib_is_refused_before_it_comes(server: FakeServer) -> None:
    header, fields = _binary(1 << 31)
    answer = await _answer_to_head(server, header, fields, len(header) + (1 << 31))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert f"exceeds the maximum allowed value of {LARGEST} bytes".encode() in answer


async def test_chunks_of_more_than_2_gib_are_refused_before_they_come(
    client: httpx.AsyncClient,
) -> None:
    header, fields = _binary(1 << 31)
    answer = await client.post(_PATH, content=_chunks(header), headers=fields)
    assert f"exceeds the maximum allowed value of {LARGEST} bytes" in answer.json()["error"]


@pytest.mark.contract("HI-08")
async def test_chunk_that_no_tensor_claims_is_refused(client: httpx.AsyncClient) -> None:
    header, fields = _binary(8)
    answer = await client.post(_PATH, content=_chunks(header, bytes(8), b"x"), headers=fields)
    assert answer.json() == {"error": "unexpected additional input data for model 'numbers'"}


async def _answer_to_head(
    server: FakeServer, text: bytes, fields: dict[str, str], length: int
) -> bytes:
    """The answer to a request of which no more than the beginning of its body is sent."""
    lines = [f"POST {_PATH} HTTP/1.1", "host: x", f"content-length: {length}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    async with open_gateway(server, _SETTINGS, ExitDeadline(0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write("\r\n".join([*lines, "", ""]).encode() + text)
        head = await asyncio.wait_for(reader.readuntil(b"}"), 20)
        await hang_up(writer)
    return head


@pytest.mark.contract("H-36")
async def test_a_body_that_has_come_whole_is_bounded_with_its_binary_tensors(
    server: FakeServer,
) -> None:
    """A short one comes with its head, and is answered without waiting for more."""
    text, headers = _binary(400)
    largest = len(text) + 396
    settings = replace(_SETTINGS, max_body_size=largest)
    async with connected(server, settings) as client:
        answer = await client.post(_PATH, content=text + bytes(400), headers=headers)
    expected = f"of {largest + 4} bytes exceeds the maximum allowed value of {largest} bytes."
    assert answer.status_code == 400
    assert expected in answer.json()["error"]
