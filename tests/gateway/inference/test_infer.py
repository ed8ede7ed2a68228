"""The inference endpoint on a port."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from typing import Any

import httpx
import numpy as np
import pytest

from gateway.serving import AnsweringServer, FakeServer, SilentServer, connected
from penstock.core.config import ModelConfig
from penstock.core.errors import InternalError, UnavailableError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.models.serving.loaded_model import NO_NEW_REQUESTS
from penstock.settings import HttpSettings

_PATH = "/v2/models/numbers/infer"


def _request(values: list[float], **more: Any) -> dict[str, Any]:
    shape = [len(values)]
    return {"inputs": [{"name": "IN", "datatype": "FP32", "shape": shape, "data": values}], **more}


def _binary(values: list[float], **more: Any) -> tuple[bytes, dict[str, str]]:
    data = np.array(values, np.float32).tobytes()
    item = {"name": "IN", "datatype": "FP32", "shape": [len(values)]}
    header = {"inputs": [item | {"parameters": {"binary_data_size": len(data)}}], **more}
    text = json.dumps(header).encode()
    return text + data, {"inference-header-content-length": str(len(text))}


def _split(answer: httpx.Response) -> tuple[dict[str, Any], bytes]:
    length = int(answer.headers["inference-header-content-length"])
    return json.loads(answer.content[:length]), answer.content[length:]


@pytest.mark.contract("H-08", "HI-08", "HI-11")
async def test_binary_tensors_in_and_out(client: httpx.AsyncClient) -> None:
    body, headers = _binary([1.0, 2.0], parameters={"binary_data_output": True})
    answer = await client.post(_PATH, content=body, headers=headers)
    header, data = _split(answer)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert header["outputs"][0]["parameters"] == {"binary_data_size": 8}
    assert np.frombuffer(data, np.float32).tolist() == [1.0, 2.0]


async def test_large_tensors_come_back_whole(client: httpx.AsyncClient) -> None:
    """Beyond what is joined into one write, and beyond what one write takes."""
    values = np.arange(2_000_000, dtype=np.float32)
    headers = {"inference-header-content-length": "0"}
    answer = await client.post(_PATH, content=values.tobytes(), headers=headers)
    assert _split(answer)[1] == values.tobytes()


async def test_chunked_body_is_taken(client: httpx.AsyncClient) -> None:
    async def chunks() -> Any:
        for byte in json.dumps(_request([1.0])).encode():
            yield bytes([byte])

    answer = await client.post(_PATH, content=chunks())
    assert answer.json()["outputs"][0]["data"] == [1.0]


@pytest.mark.contract("HI-18")
@pytest.mark.parametrize(
    ("encoding", "unpack"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)]
)
async def test_response_is_compressed_if_accepted(
    client: httpx.AsyncClient, encoding: str, unpack: Any
) -> None:
    """The header length is that of the body before compression (contract HI-18)."""
    body, headers = _binary([0.0] * 50_000, parameters={"binary_data_output": True})
    headers["accept-encoding"] = encoding
    async with client.stream("POST", _PATH, content=body, headers=headers) as answer:
        raw = b"".join([part async for part in answer.aiter_raw()])
    plain = unpack(raw)
    length = int(answer.headers["inference-header-content-length"])
    assert answer.headers["content-encoding"] == encoding
    assert len(raw) == int(answer.headers["content-length"]) < len(plain)
    assert plain[length:] == bytes(200_000)


@pytest.mark.contract("HI-17")
async def test_unknown_compression_is_refused_with_the_known_ones(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.post(_PATH, content=b"x", headers={"content-encoding": "br"})
    assert (answer.status_code, answer.json()) == (501, {"error": "Unsupported compression type"})
    assert answer.headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize("length", [{}, {"inference-header-content-length": "1"}])
@pytest.mark.parametrize(
    "body", [b"x", zlib.compress(b"x", wbits=-15)], ids=["text", "raw deflate"]
)
async def test_body_that_cannot_be_unpacked_is_not_run(
    client: httpx.AsyncClient, body: bytes, length: dict[str, str]
) -> None:
    headers = {"content-encoding": "deflate", **length}
    answer = await client.post(_PATH, content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json() == {"error": "unable to decompress the request body"}


async def test_empty_body_is_an_empty_tensor(client: httpx.AsyncClient, server: FakeServer) -> None:
    answer = await client.post(_PATH)
    assert answer.json()["outputs"][0]["shape"] == [0]
    assert server.requests[0].inputs["IN"].nbytes == 0


async def test_large_tensor_becomes_json(client: httpx.AsyncClient) -> None:
    values = np.random.default_rng(1).random(1 << 16, np.float32)
    body, headers = _binary(values.tolist())
    answer = await client.post(_PATH, content=body, headers=headers)
    (output,) = answer.json()["outputs"]
    assert np.array_equal(np.array(output["data"], np.float32), values)


async def test_connection_serves_on_after_a_refused_body(server: FakeServer) -> None:
    settings = HttpSettings(address="127.0.0.1", port=0, max_input_size=1000)
    async with connected(server, settings) as client:
        await client.post(_PATH, content=bytes(1 << 20))
        answer = await client.post(_PATH, json=_request([1.0]))
    assert answer.status_code == 200


@pytest.mark.parametrize("count", [0, 2])
async def test_number_of_responses_must_be_one(count: int) -> None:
    async with connected(AnsweringServer(*[InferenceResponse()] * count)) as client:
        answer = await client.post(_PATH, json=_request([1.0]))
    assert answer.status_code == 500
    assert answer.json() == {"error": f"expected a single response, got {count}"}


@pytest.mark.parametrize(
    "server",
    [
        AnsweringServer(InferenceResponse(error=InternalError("broken"))),
        AnsweringServer(error=InternalError("broken")),
    ],
)
async def test_error_of_the_model_is_the_answer(server: FakeServer) -> None:
    async with connected(server) as client:
        answer = await client.post(_PATH, json=_request([1.0]))
    assert (answer.status_code, answer.json()) == (500, {"error": "broken"})
    assert answer.headers["content-type"] == "text/plain"


async def test_output_that_json_cannot_carry_is_an_error() -> None:
    half = Tensor.from_numpy(np.ones(1, np.float16))
    async with connected(AnsweringServer(InferenceResponse({"OUT": half}))) as client:
        answer = await client.post(_PATH, json=_request([1.0]))
    assert answer.status_code == 400
    assert "sending FP16 data via JSON is not supported" in answer.text


async def test_refusal_of_the_core_is_the_answer(
    client: httpx.AsyncClient, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: InferenceRequest) -> ResponseStream:
        raise UnavailableError("queue is full")

    monkeypatch.setattr(server, "infer", refuse)
    answer = await client.post(_PATH, json=_request([1.0]))
    assert (answer.status_code, answer.json()) == (503, {"error": "queue is full"})


@pytest.mark.contract("S-22")
@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (json.dumps(_request([1.0])).encode(), {}),
        (bytes(4), {"inference-header-content-length": "0"}),
    ],
)
async def test_model_that_ends_its_sequences_refuses_raw_requests_as_it_does_others(
    client: httpx.AsyncClient,
    server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
    body: bytes,
    headers: dict[str, str],
) -> None:
    """The server exits and shows no configurations any more; the model has the last word."""

    async def exiting(name: str, version: str) -> ModelConfig:
        raise UnavailableError("Server exiting")

    def stopping(_: InferenceRequest) -> ResponseStream:
        raise UnavailableError(NO_NEW_REQUESTS)

    monkeypatch.setattr(server, "model_config", exiting)
    monkeypatch.setattr(server, "infer", stopping)
    answer = await client.post(_PATH, content=body, headers=headers)
    assert (answer.status_code, answer.json()) == (503, {"error": NO_NEW_REQUESTS})


@pytest.mark.contract("H-35")
async def test_client_that_leaves_takes_its_request_along(
    silent_client: httpx.AsyncClient, silent_server: SilentServer
) -> None:
    """And no other one's."""
    closed = asyncio.Event()
    leaving = asyncio.create_task(silent_client.post(_PATH, json=_request([1.0])))
    _, left = await silent_server.asked.get()
    left.connect(closed.set)
    waiting = asyncio.create_task(silent_client.post(_PATH, json=_request([2.0])))
    _, stays = await silent_server.asked.get()
    leaving.cancel()
    await asyncio.wait_for(closed.wait(), 20)
    stays.send(InferenceResponse(final=True))
    assert (await waiting).status_code == 200


@pytest.mark.contract("HI-07")
async def test_booleans_are_true_and_false_there_and_back(client: httpx.AsyncClient) -> None:
    tensor = {"name": "IN", "datatype": "BOOL", "shape": [2], "data": [True, False]}
    answer = await client.post(_PATH, json={"inputs": [tensor]})
    assert '"data":[true,false]' in answer.text
    numbers = await client.post(_PATH, json={"inputs": [{**tensor, "data": [1, 0]}]})
    assert numbers.json()["error"].endswith("attempt to access JSON non-boolean as boolean")


@pytest.mark.interpreted("it takes a function away, which compiled callers still have")
async def test_client_that_leaves_while_its_answer_is_encoded_is_released_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = Tensor.from_numpy(np.ones(4_000_000, np.float32))
    half = Tensor.from_numpy(np.ones(1_000_000, np.float16))  # which JSON cannot carry
    server = AnsweringServer(InferenceResponse({"A": large, "B": half}, final=True))
    released: list[InferenceRequest] = []
    monkeypatch.setattr(type(server.regions), "release", lambda _, one: released.append(one))
    monkeypatch.setitem(server.regions.entries, "another's", None)
    body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [1.0]}]}
    async with connected(server) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post(_PATH, json=body, timeout=httpx.Timeout(30.0, read=0.05))
    assert len(released) == 1
