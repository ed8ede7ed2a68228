"""The official HTTP client, in a thread of its own, against a server on a port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gateway.serving import LOCAL, FakeServer
from penstock.core.config import ModelConfig, ModelInput, ModelOutput
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import DataType
from penstock.gateway.app import open_gateway
from penstock.inflight.statistics import Statistics
from penstock.models.serving.answers import ModelStatistics
from penstock.server.answers import ModelIndexEntry

http = pytest.importorskip("tritonclient.http", exc_type=ImportError)


class _Identity(FakeServer):
    """Answers every input under its own name."""

    def answer(self, request: InferenceRequest, stream: ResponseStream) -> None:
        stream.send(InferenceResponse(request.inputs, final=True))


@pytest.fixture
def server() -> FakeServer:
    return _Identity()


@pytest.fixture
async def ask(server: FakeServer) -> Any:
    """Runs a function with the client, beside the server's loop."""

    async def run(function: Callable[[Any], Any]) -> Any:
        def work() -> Any:
            with http.InferenceServerClient(f"127.0.0.1:{port}") as client:
                return function(client)

        async with open_gateway(server, LOCAL, ExitDeadline(1)) as port:
            return await asyncio.to_thread(work)

    return run


_ARRAYS = {
    "BOOL": np.array([True, False]),
    "UINT8": np.array([[0, 255]], np.uint8),
    "INT64": np.array([-(2**63), 2**63 - 1]),
    "FP16": np.array([0.5, -1.0], np.float16),
    "FP32": np.array([[1.5], [np.inf]], np.float32),
    "FP64": np.zeros((0, 3)),
    "BYTES": np.array([b"a\0b", b"", b"\xff"], np.object_),
}


def _infer(client: Any, array: Any, datatype: str, **more: Any) -> Any:
    binary = more.pop("binary", True)
    tensor = http.InferInput("IN", array.shape, datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    outputs = [http.InferRequestedOutput("IN", binary_data=binary)]
    result = client.infer("m", [tensor], outputs=outputs, **more)
    return result.as_numpy("IN")


@pytest.mark.contract("CC-02", "CC-09")
@pytest.mark.contract("HI-21")
@pytest.mark.parametrize("datatype", _ARRAYS)
async def test_tensors_come_back_as_they_were(ask: Any, datatype: str) -> None:
    array = _ARRAYS[datatype]
    answer = await ask(lambda client: _infer(client, array, datatype))
    np.testing.assert_array_equal(answer, array)


@pytest.mark.contract("CC-07")
@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT64", "FP32"])
async def test_tensors_come_back_through_json(ask: Any, datatype: str) -> None:
    array = _ARRAYS[datatype]
    answer = await ask(lambda client: _infer(client, array, datatype, binary=False))
    np.testing.assert_array_equal(answer, array)


@pytest.mark.contract("CC-02")
@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
async def test_bodies_may_be_compressed_both_ways(ask: Any, algorithm: str) -> None:
    array = np.arange(100_000, dtype=np.float32)
    compression = {
        "request_compression_algorithm": algorithm,
        "response_compression_algorithm": algorithm,
    }
    answer = await ask(lambda client: _infer(client, array, "FP32", **compression))
    np.testing.assert_array_equal(answer, array)


async def test_without_requested_outputs_all_are_binary(ask: Any) -> None:
    def infer(client: Any) -> Any:
        tensor = http.InferInput("IN", [2], "FP32").set_data_from_numpy(np.ones(2, np.float32))
        return client.infer("m", [tensor])

    result = await ask(infer)
    assert result.get_output("IN")["parameters"] == {"binary_data_size": 8}
    assert result.as_numpy("IN").tolist() == [1.0, 1.0]


async def test_options_of_a_request_arrive(ask: Any, server: FakeServer) -> None:
    options = {
        "request_id": "7",
        "sequence_id": 9,
        "sequence_start": True,
        "sequence_end": True,
        "priority": 2,
        "timeout": 5000,
        "parameters": {"x": 1.5},
    }
    await ask(lambda client: _infer(client, _ARRAYS["FP32"], "FP32", **options))
    (request,) = server.requests
    assert (request.id, request.correlation_id) == ("7", 9)
    assert (request.sequence_start, request.sequence_end) == (True, True)
    assert (request.priority, request.timeout, dict(request.parameters)) == (2, 5000, {"x": 1.5})


async def test_error_is_an_exception_with_the_text(ask: Any) -> None:
    def infer(client: Any) -> None:
        tensor = http.InferInput("IN", [1], "FP32")
        tensor.set_shared_memory("region", 4)
        client.infer("m", [tensor])

    with pytest.raises(http.InferenceServerException, match="Unable to find shared memory region"):
        await ask(infer)


@pytest.mark.contract("CC-02")
async def test_everything_else_that_the_client_asks(ask: Any, server: FakeServer) -> None:
    server.entries = (ModelIndexEntry("m", "1", "READY"),)
    server.counted = (ModelStatistics("m", "1", Statistics()),)
    server.config = ModelConfig(
        name="m",
        input=(ModelInput(name="IN", data_type=DataType.FP32, dims=(-1,)),),
        output=(ModelOutput(name="OUT", data_type=DataType.FP32, dims=(-1,)),),
    )

    def work(client: Any) -> None:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("m", "1")
        assert client.get_server_metadata()["name"] == "fake"
        assert client.get_model_metadata("m")["inputs"][0]["name"] == "IN"
        assert client.get_model_config("m")["name"] == "m"
        assert client.get_inference_statistics()["model_stats"][0]["name"] == "m"
        assert client.get_inference_statistics("m", "1")["model_stats"][0]["version"] == "1"
        assert client.get_model_repository_index() == [
            {"name": "m", "version": "1", "state": "READY"}
        ]
        client.load_model("m", config="{}", files={"file:1/model.bin": b"\0\1"})
        client.unload_model("m", unload_dependents=True)

    await ask(work)
    assert server.loaded == [("m", {"config": "{}", "file:1/model.bin": b"\0\1"})]
    assert server.unloaded == [("m", True)]


@pytest.mark.slow
@pytest.mark.contract("H-36")
async def test_binary_input_may_be_larger_than_the_limit_of_json(ask: Any) -> None:
    """100 MiB with default settings, whose limit is 64."""
    values = np.arange(25 << 20, dtype=np.float32)

    def infer(client: Any) -> Any:
        given = http.InferInput("IN", list(values.shape), "FP32")
        given.set_data_from_numpy(values)
        wanted = http.InferRequestedOutput("IN")
        return client.infer("numbers", [given], outputs=[wanted]).as_numpy("IN")

    assert np.array_equal(await ask(infer), values)
