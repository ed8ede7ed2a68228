"""Metadata, configuration and statistics of servers and models, over a real channel."""

from __future__ import annotations

import grpc
import pytest

from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol.pool import POOL
from rpc.servicer.calls import ONE, failure
from rpc.serving import SERVICE, Client, infer_request

pytestmark = pytest.mark.asyncio(loop_scope="module")

DISABLED = (
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.",
    "log settings are not available on this server",
)

METHODS = [
    method.name
    for method in POOL.FindServiceByName(SERVICE).methods
    if method.name != "ModelStreamInfer"
]


# -- every method ----------------------------------------------------------------------------------


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
    )


# -- health and metadata ---------------------------------------------------------------------------


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
async def test_statistics_count_inferences(client: Client) -> None:
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
