"""Every RPC, by our own messages over a real channel, on a server with small models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import pytest_asyncio

from hosting.puppets import eventually
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.models.server import InferenceServer
from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol.pool import POOL
from penstock.settings import GrpcSettings
from rpc.manual import ManualServer, number
from rpc.serving import (
    SERVICE,
    Client,
    connected,
    infer_request,
    open_models,
    output,
    repeat_request,
    write_models,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

DISABLED = (
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.",
    "this server's log has no settings",
)
METHODS = [
    method.name
    for method in POOL.FindServiceByName(SERVICE).methods
    if method.name != "ModelStreamInfer"
]
ONE = np.ones(4, np.float32)


class Answering(ManualServer):
    """Gives every request the same responses, and ends its stream."""

    def __init__(self, *responses: InferenceResponse) -> None:
        super().__init__()
        self._responses = responses

    def infer(self, request: InferenceRequest) -> ResponseStream:
        stream = super().infer(request)
        for response in self._responses:
            stream.send(response)
        stream.end()
        return stream


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InferenceServer]:
    async with open_models(write_models(tmp_path_factory.mktemp("models"))) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(local: GrpcSettings, server: InferenceServer) -> AsyncIterator[Client]:
    async with connected(server, local) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def controller(local: GrpcSettings, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a server that loads and unloads models when it is told to."""
    async with (
        open_models(write_models(tmp_path), explicit=True) as server,
        connected(server, local) as client,
    ):
        yield client


# -- every method ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
async def test_every_method_is_served(client: Client, name: str) -> None:
    """An empty request has an answer, or an error that it deserves."""
    call = client.method(name)(getattr(pb, f"{name}Request")())
    if await call.code() is grpc.StatusCode.UNIMPLEMENTED:
        assert await call.details() in DISABLED
        return
    assert await call.code() in (
        grpc.StatusCode.OK,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNIMPLEMENTED,
    )


# -- health and metadata --------------------------------------------------------------------------


@pytest.mark.contract("G-01", "G-02")
async def test_server_lives_and_is_ready(client: Client) -> None:
    assert (await client.call("ServerLive")).live
    assert (await client.call("ServerReady")).ready


@pytest.mark.contract("G-04", "G-05")
async def test_server_names_itself_and_its_extensions(client: Client) -> None:
    metadata = await client.call("ServerMetadata")
    assert (metadata.name, metadata.version) == ("triton", "1.2.3")
    assert {"model_repository", "binary_tensor_data", "statistics"} <= set(metadata.extensions)


@pytest.mark.contract("G-03")
@pytest.mark.parametrize(
    ("name", "version", "ready"),
    [("identity", "", True), ("identity", "3", True), ("identity", "2", False), ("no", "", False)],
)
async def test_model_is_ready_when_it_serves(
    client: Client, name: str, version: str, ready: bool
) -> None:
    request = pb.ModelReadyRequest(name=name, version=version)
    assert (await client.call("ModelReady", request)).ready is ready


@pytest.mark.contract("G-06")
async def test_model_metadata_shows_the_batch_dimension(client: Client) -> None:
    metadata = await client.call("ModelMetadata", pb.ModelMetadataRequest(name="batched"))
    (tensor,) = metadata.inputs
    assert (metadata.name, metadata.platform) == ("batched", "identity")
    assert (tensor.name, tensor.datatype, list(tensor.shape)) == ("IN", "FP32", [-1, -1])


@pytest.mark.contract("G-06")
@pytest.mark.parametrize(("version", "versions"), [("", ["1", "3"]), ("1", ["1"])])
async def test_model_metadata_lists_versions(
    client: Client, version: str, versions: list[str]
) -> None:
    request = pb.ModelMetadataRequest(name="identity", version=version)
    assert list((await client.call("ModelMetadata", request)).versions) == versions


@pytest.mark.contract("G-09", "X-21")
async def test_model_config_is_complete(client: Client) -> None:
    config = (await client.call("ModelConfig", pb.ModelConfigRequest(name="repeat"))).config
    assert (config.name, config.backend) == ("repeat", "repeat")
    assert config.model_transaction_policy.decoupled
    assert [group.count for group in config.instance_group] == [1]


@pytest.mark.contract("G-33")
@pytest.mark.parametrize("name", ["ModelMetadata", "ModelConfig"])
async def test_model_that_is_not_there_is_not_found(client: Client, name: str) -> None:
    request = getattr(pb, f"{name}Request")(name="no")
    code, text = await failure(client.call(name, request))
    assert code is grpc.StatusCode.NOT_FOUND
    assert text == "Request for unknown model: 'no' is not found"


@pytest.mark.contract("G-10")
async def test_statistics_count_what_was_done(client: Client) -> None:
    request = pb.ModelStatisticsRequest(name="identity", version="1")
    before = (await client.call("ModelStatistics", request)).model_stats[0]
    await client.call("ModelInfer", infer_request("identity", version="1", IN=ONE))
    (after,) = (await client.call("ModelStatistics", request)).model_stats
    assert (after.name, after.version) == ("identity", "1")
    assert after.inference_count == before.inference_count + 1
    assert after.execution_count == before.execution_count + 1
    assert after.inference_stats.success.count == before.inference_stats.success.count + 1
    assert after.inference_stats.success.ns > before.inference_stats.success.ns
    assert [batch.batch_size for batch in after.batch_stats] == [1]
    assert after.last_inference > 1_600_000_000_000


@pytest.mark.contract("G-10")
async def test_statistics_of_all_models_are_had_at_once(client: Client) -> None:
    models = (await client.call("ModelStatistics")).model_stats
    named = [(model.name, model.version) for model in models]
    assert named == [
        ("batched", "1"),
        ("identity", "1"),
        ("identity", "3"),
        ("isolated", "1"),
        ("repeat", "1"),
    ]


# -- model repository -----------------------------------------------------------------------------


@pytest.mark.contract("G-11", "G-12", "G-13")
async def test_models_come_and_go(controller: Client) -> None:
    load = pb.RepositoryModelLoadRequest(model_name="batched")
    assert await states(controller) == {}
    await controller.call("RepositoryModelLoad", load)
    assert await states(controller) == {("batched", "1"): "READY"}
    unload = pb.RepositoryModelUnloadRequest(model_name="batched")
    await controller.call("RepositoryModelUnload", unload)
    code, text = await failure(controller.call("ModelInfer", infer_request("batched", IN=ONE)))
    assert code is grpc.StatusCode.NOT_FOUND
    assert text == "Request for unknown model: 'batched' has no available versions"


@pytest.mark.contract("G-11")
async def test_index_names_models_that_were_never_loaded(controller: Client) -> None:
    models = (await controller.call("RepositoryIndex")).models
    assert [(model.name, model.state) for model in models] == [
        ("batched", ""),
        ("identity", ""),
        ("isolated", ""),
        ("repeat", ""),
    ]


@pytest.mark.contract("X-20")
async def test_models_are_not_controlled_unless_it_is_allowed(client: Client) -> None:
    request = pb.RepositoryModelLoadRequest(model_name="identity")
    code, text = await failure(client.call("RepositoryModelLoad", request))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert text == "explicit model load / unload is not allowed if polling is enabled"


@pytest.mark.contract("G-11")
@pytest.mark.parametrize(
    "name", ["RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"]
)
async def test_repository_cannot_be_chosen(controller: Client, name: str) -> None:
    request = getattr(pb, f"{name}Request")(repository_name="elsewhere")
    code, text = await failure(controller.call(name, request))
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert text == "'repository_name' specification is not supported"


# -- unary inference ------------------------------------------------------------------------------


@pytest.mark.contract("G-07")
@pytest.mark.parametrize("model", ["identity", "isolated"])
async def test_inference_is_answered(client: Client, model: str) -> None:
    reply = await client.call("ModelInfer", infer_request(model, "my-id", IN=ONE))
    assert (reply.model_name, reply.id) == (model, "my-id")
    assert output(reply, "OUT").tolist() == [1.0] * 4
    assert not reply.parameters


@pytest.mark.contract("G-07")
@pytest.mark.parametrize(("version", "answers"), [("", "3"), ("1", "1"), ("3", "3")])
async def test_highest_version_answers_unless_one_is_named(
    client: Client, version: str, answers: str
) -> None:
    request = infer_request("identity", version=version, IN=ONE)
    assert (await client.call("ModelInfer", request)).model_version == answers


async def test_many_calls_at_once_are_all_answered(client: Client) -> None:
    requests = [
        infer_request("batched", str(n), IN=np.full((1, 4), n, np.float32)) for n in range(200)
    ]
    replies = await asyncio.gather(*(client.call("ModelInfer", request) for request in requests))
    assert [int(output(reply, "OUT")[0, 0]) for reply in replies] == list(range(200))


@pytest.mark.contract("GT-01")
@pytest.mark.parametrize("model", ["identity", "isolated"])
async def test_inference_of_64_mib(client: Client, model: str) -> None:
    array = np.arange(16 << 20, dtype=np.float32)
    reply = await client.call("ModelInfer", infer_request(model, IN=array))
    assert (output(reply, "OUT") == array).all()


@pytest.mark.contract("G-07", "DC-03")
async def test_decoupled_model_does_not_answer_unary_calls(client: Client) -> None:
    code, text = await failure(client.call("ModelInfer", repeat_request("repeat", [1])))
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert text == "ModelInfer RPC doesn't support models with decoupled transaction policy"


@pytest.mark.contract("G-34")
@pytest.mark.parametrize("count", [0, 2])
async def test_other_than_one_response_is_an_error(local: GrpcSettings, count: int) -> None:
    async with connected(Answering(*map(number, range(count))), local) as client:
        code, text = await failure(client.call("ModelInfer", infer_request("once")))
    assert code is grpc.StatusCode.INTERNAL
    assert text == f"expected a single response, got {count}"


@pytest.mark.contract("GP-21")
async def test_cancelled_call_cancels_its_request(local: GrpcSettings) -> None:
    server = ManualServer()
    async with connected(server, local) as client:
        call = client.method("ModelInfer")(infer_request("once", "a"))
        await eventually(lambda: "a" in server.streams)
        call.cancel()
        await eventually(lambda: server.closed == ["a"])


@pytest.mark.contract("GP-23")
async def test_deadline_cancels_its_request(local: GrpcSettings) -> None:
    server = ManualServer()
    async with connected(server, local) as client:
        code, _ = await failure(client.call("ModelInfer", infer_request("once", "a"), timeout=1.0))
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: server.closed == ["a"])


async def test_cancelled_call_leaves_its_neighbours_alone(local: GrpcSettings) -> None:
    server = ManualServer()
    async with connected(server, local) as client:
        calls = [client.method("ModelInfer")(infer_request("once", id)) for id in "ab"]
        await eventually(lambda: len(server.streams) == 2)
        calls[0].cancel()
        server.streams["b"].send(number(7, final=True))
        assert int(output(await calls[1], "OUT")[0]) == 7


# -- streams --------------------------------------------------------------------------------------


@pytest.mark.contract("G-08", "GP-15")
async def test_several_models_talk_on_one_stream(client: Client) -> None:
    responses = await client.conversation(
        [
            repeat_request("repeat", [1, 2, 3], delay=20, id="r"),
            infer_request("identity", "i", IN=ONE),
            infer_request("nothing", "x", IN=ONE),
            infer_request("isolated", "p", IN=ONE),
            repeat_request("repeat", [], id="e", empty_final=True),
        ]
    )
    ids = [response.infer_response.id for response in responses]
    assert sorted(ids) == ["e", "i", "p", "r", "r", "r", "x"]
    assert ids.index("i") < ids.index("x") < ids.index("p")
    assert ids[-1] == "r"


@pytest.mark.contract("GP-16")
async def test_a_thousand_requests_on_one_stream_are_answered_in_order(client: Client) -> None:
    requests = [
        infer_request("identity", str(n), IN=np.full(1, n, np.float32)) for n in range(1000)
    ]
    responses = await client.conversation(requests)
    assert [response.infer_response.id for response in responses] == [str(n) for n in range(1000)]
    assert [output(r.infer_response, "OUT")[0] for r in responses] == list(range(1000))


@pytest.mark.contract("GP-16", "DC-01")
async def test_a_hundred_decoupled_requests_on_one_stream_keep_their_order(
    client: Client,
) -> None:
    requests = [repeat_request("repeat", range(20), id=str(n)) for n in range(100)]
    seen: dict[str, list[int]] = {str(n): [] for n in range(100)}
    for response in await client.conversation(requests):
        seen[response.infer_response.id].append(int(output(response.infer_response, "OUT")[0]))
    assert all(values == list(range(20)) for values in seen.values())


@pytest.mark.contract("GP-22")
async def test_cancelled_stream_cancels_its_requests(
    client: Client, server: InferenceServer
) -> None:
    before = cancelled(server)
    call = client.stream()
    for id in "abc":
        await call.write(repeat_request("repeat", range(1000), delay=5, id=id))
    await call.read()
    call.cancel()
    await eventually(lambda: cancelled(server) == before + 3)


async def test_deadline_of_a_stream_cancels_its_requests(
    client: Client, server: InferenceServer
) -> None:
    before = cancelled(server)
    code, _ = await failure(
        client.conversation([repeat_request("repeat", range(1000), delay=5)], timeout=1.0)
    )
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: cancelled(server) == before + 1)


async def test_reader_that_does_not_read_holds_back_the_model(
    client: Client, server: InferenceServer
) -> None:
    """What was not asked for is not made: a million responses would take long."""
    before = cancelled(server)
    call = client.stream()
    await call.write(repeat_request("repeat", range(1_000_000)))
    await call.read()
    await asyncio.sleep(0.2)
    call.cancel()
    await eventually(lambda: cancelled(server) == before + 1)


@pytest.mark.contract("GP-20")
async def test_half_close_does_not_stop_responses(client: Client) -> None:
    call = client.stream()
    await call.write(repeat_request("repeat", range(8), delay=10))
    await call.done_writing()
    assert len([response async for response in call]) == 8
    assert await call.code() is grpc.StatusCode.OK


async def test_bytes_that_are_no_request_end_the_stream_and_its_requests(
    client: Client, server: InferenceServer
) -> None:
    before = cancelled(server)
    call = client.channel.stream_stream(f"/{SERVICE}/ModelStreamInfer", bytes, bytes)(None)
    await call.write(repeat_request("repeat", range(1000), delay=5).SerializeToString())
    await call.read()
    await call.write(b"\xff\xff\xff")
    code, details = await failure(_read_to_the_end(call))  # where the status is
    assert (code, details) == (grpc.StatusCode.INTERNAL, "Unable to parse request")
    await eventually(lambda: cancelled(server) == before + 1)


# -- the end --------------------------------------------------------------------------------------


@pytest.mark.contract("G-35")
async def test_server_that_stops_takes_no_more_requests(
    local: GrpcSettings, tmp_path: Path
) -> None:
    async with (
        open_models(write_models(tmp_path), explicit=True) as server,
        connected(server, local) as client,
    ):
        server.refuse()
        for name in ("ServerLive", "ServerReady", "ModelInfer", "RepositoryModelLoad"):
            assert await failure(client.call(name)) == (
                grpc.StatusCode.UNAVAILABLE,
                "Server exiting",
            )


# -- helpers --------------------------------------------------------------------------------------


async def failure(call: Any) -> tuple[grpc.StatusCode, str | None]:
    """Code and text of the error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code(), failed.value.details()


async def states(client: Client) -> dict[tuple[str, str], str]:
    """The states of all versions that are known."""
    models = (await client.call("RepositoryIndex")).models
    return {(model.name, model.version): model.state for model in models if model.state}


async def _read_to_the_end(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
        pass


def cancelled(server: InferenceServer) -> float:
    """Requests of the repeat model whose client left."""
    return next(gauge.value for gauge in server.gauges() if gauge.name == "cancelled")
