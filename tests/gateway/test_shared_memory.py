"""Client shared memory over HTTP: regions by path, and parameters of tensors in JSON."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, cast

import httpx
import numpy as np
import pytest

from fakes.cuda import HANDLE, FakeCuda
from gateway.serving import FakeServer, connected
from harness.posix_memory import PosixMemory, posix_memory
from penstock.core.errors import InferenceError
from penstock.core.request import InferenceResponse
from penstock.core.tensor import Tensor
from penstock.gateway.inference.codec import decode_request, encode_response
from penstock.shared_memory.cuda import open_cuda_region
from penstock.shared_memory.registry import Regions

SYSTEM = "/v2/systemsharedmemory"
CUDA = "/v2/cudasharedmemory"
IN_REGION = {"shared_memory_region": "r", "shared_memory_byte_size": 8}


@pytest.fixture
async def client(regions: Regions) -> AsyncIterator[httpx.AsyncClient]:
    server = FakeServer()
    server.regions = regions
    async with connected(server) as client:
        yield client


def decode(request: Any, regions: Regions) -> Any:
    return decode_request("m", "1", request, memoryview(b""), 1 << 20, regions)


def item(name: str = "IN", **parameters: Any) -> dict[str, Any]:
    given = {"name": name, "datatype": "INT32", "shape": [2]}
    return given | {"parameters": IN_REGION | parameters}


# -- regions --------------------------------------------------------------------------------------


@pytest.mark.contract("H-17", "H-18", "H-19")
async def test_region_comes_and_goes_by_its_path(client: httpx.AsyncClient) -> None:
    with posix_memory() as other:
        body = {"key": other.key, "byte_size": 128}
        answer = await client.post(f"{SYSTEM}/region/o%20/register", json=body)
        assert (answer.status_code, answer.content) == (200, b"")
    status = (await client.get(f"{SYSTEM}/region/o%20/status")).json()
    assert status == [{"name": "o%20", "key": other.key, "offset": 0, "byte_size": 128}]
    assert [one["name"] for one in (await client.get(f"{SYSTEM}/status")).json()] == ["o%20", "r"]
    await client.post(f"{SYSTEM}/region/r/unregister")
    assert [one["name"] for one in (await client.get(f"{SYSTEM}/status")).json()] == ["o%20"]
    await client.post(f"{SYSTEM}/unregister")
    assert (await client.get(f"{SYSTEM}/status")).json() == []


@pytest.mark.contract("H-18", "H-21", "X-11")
@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        (f"{SYSTEM}/register", "{}", 400, "'region name' is necessary to register system shared"),
        (f"{CUDA}/register", "{}", 400, "'region name' is necessary to register cuda shared"),
        (f"{SYSTEM}/region/a/register", "", 500, "failed to parse the request JSON buffer: The"),
        (f"{SYSTEM}/region/a/register", "[1]", 400, "register request has no 'key' field"),
        (f"{SYSTEM}/region/a/register", '{"key": "/k"}', 400, "has no 'byte_size' field"),
        (f"{SYSTEM}/region/a/register", '{"key": 5}', 500, "attempt to access JSON non-string"),
        (
            f"{SYSTEM}/region/a/register",
            '{"key": "/k", "byte_size": -1}',
            500,
            "attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (f"{CUDA}/region/a/register", "{}", 400, "register request has no 'raw_handle' field"),
        (
            f"{CUDA}/region/a/register",
            '{"raw_handle": {}}',
            500,
            "attempt to access non-existing object member 'b64'",
        ),
        (
            f"{CUDA}/region/a/register",
            '{"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 1}',
            400,
            "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t",
        ),
        (  # of the right size, but for a character that base64 does not have
            f"{CUDA}/region/a/register",
            json.dumps(
                {
                    "raw_handle": {"b64": f"-{b64encode(bytes(64)).decode()}"},
                    "device_id": 0,
                    "byte_size": 1,
                }
            ),
            400,
            "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t",
        ),
        (
            f"{CUDA}/region/a/register",
            json.dumps(
                {
                    "raw_handle": {"b64": b64encode(bytes(64)).decode()},
                    "device_id": 0,
                    "byte_size": 1,
                }
            ),
            400,
            "failed to register shared memory region: invalid args",
        ),
    ],
)
async def test_wrong_registrations_are_refused(
    client: httpx.AsyncClient, path: str, body: str, status: int, text: str
) -> None:
    answer = await client.post(path, content=body)
    assert answer.status_code == status
    assert text in answer.json()["error"]


@pytest.mark.contract("H-20", "H-22")
async def test_there_is_no_memory_of_gpus(client: httpx.AsyncClient) -> None:
    assert (await client.get(f"{CUDA}/status")).json() == []
    answer = await client.get(f"{CUDA}/region/x/status")
    assert answer.json() == {"error": "Unable to find cuda shared memory region: 'x'"}
    assert answer.status_code == 404
    assert (await client.post(f"{CUDA}/region/x/unregister")).status_code == 200
    assert (await client.post(f"{CUDA}/unregister")).status_code == 200


@pytest.mark.contract("H-20", "H-21", "H-22", "X-11")
async def test_memory_of_a_gpu_comes_and_goes_by_its_name(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = FakeCuda()
    on_fake = partial(open_cuda_region, cuda=cast(Any, lambda: cuda))
    monkeypatch.setattr("penstock.shared_memory.registry.open_cuda_region", on_fake)
    handle = {"b64": b64encode(HANDLE).decode()}
    for name in ("a", "b"):
        body = {"raw_handle": handle, "device_id": 1, "byte_size": 64}
        assert (await client.post(f"{CUDA}/region/{name}/register", json=body)).status_code == 200
    status = (await client.get(f"{CUDA}/status")).json()
    assert status == [{"name": name, "device_id": 1, "byte_size": 64} for name in ("a", "b")]
    assert (await client.post(f"{CUDA}/region/a/unregister")).status_code == 200
    assert [one["name"] for one in (await client.get(f"{CUDA}/status")).json()] == ["b"]
    assert len(cuda.opened) == 1
    assert [one["name"] for one in (await client.get(f"{SYSTEM}/status")).json()] == ["r"]
    await client.post(f"{CUDA}/unregister")
    assert (await client.get(f"{CUDA}/status")).json() == []
    assert cuda.opened == []


# -- tensors --------------------------------------------------------------------------------------


@pytest.mark.contract("HI-19")
def test_input_is_read_from_the_region(regions: Regions, memory: PosixMemory) -> None:
    np.frombuffer(memory.data, np.int32)[2:4] = 5, 6
    request, _ = decode({"inputs": [item(shared_memory_offset=8)]}, regions)
    assert request.inputs["IN"].numpy().tolist() == [5, 6]


@pytest.mark.contract("HI-19")
@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (
            {"shared_memory_byte_size": "8"},
            "Unable to parse 'shared_memory_byte_size': attempt to access JSON"
            " non-unsigned-integer as unsigned-integer",
        ),
        (
            {"shared_memory_offset": -8},
            "Unable to parse 'shared_memory_offset': attempt to access JSON"
            " non-unsigned-integer as unsigned-integer",
        ),
        (
            {"shared_memory_region": 1},
            "Unable to parse 'shared_memory_region': attempt to access JSON non-string as string",
        ),
        ({"shared_memory_region": "x"}, "Unable to find shared memory region: 'x'"),
        (
            {"shared_memory_offset": 60},
            "Invalid offset + byte size for shared memory region: 'r'",
        ),
    ],
)
def test_wrong_parameters_are_refused(
    regions: Regions, parameters: dict[str, Any], text: str
) -> None:
    with pytest.raises(InferenceError) as refused:
        decode({"inputs": [item(**parameters)]}, regions)
    assert refused.value.message == text
    with pytest.raises(InferenceError) as refused:
        decode({"inputs": [item()], "outputs": [item("OUT", **parameters)]}, regions)
    assert refused.value.message == text


@pytest.mark.contract("HI-19")
async def test_output_goes_to_the_region_and_not_into_the_body(
    regions: Regions, memory: PosixMemory
) -> None:
    outputs = [item("A", shared_memory_offset=16), {"name": "B"}]
    request, form = decode({"inputs": [item()], "outputs": outputs}, regions)
    tensor = Tensor.from_numpy(np.array([7, 8], np.int32))
    reply = encode_response(request, "1", InferenceResponse({"A": tensor, "B": tensor}), form)
    assert reply is not None
    described = {"datatype": "INT32", "shape": [2]}
    assert json.loads(b"".join(reply.header))["outputs"] == [
        {"name": "A", **described},
        {"name": "B", **described, "data": [7, 8]},
    ]
    assert np.frombuffer(memory.data, np.int32)[4:6].tolist() == [7, 8]


@pytest.mark.parametrize("other", [{"binary_data": True}, {"classification": 0}])
def test_output_in_a_region_is_nothing_else(regions: Regions, other: dict[str, Any]) -> None:
    (key,) = other
    text = f"Output can't set both 'shared_memory_region' and '{key}'"
    with pytest.raises(InferenceError, match=text):
        decode({"inputs": [item()], "outputs": [item("OUT", **other)]}, regions)
