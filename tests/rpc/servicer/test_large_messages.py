"""Requests that are parsed in steps, and those that are refused before they are parsed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import grpc
import h2.config
import h2.connection
import h2.events
import numpy as np
import pytest

from harness.raw_clients import hang_up
from penstock.core.access import Access
from penstock.core.exit_deadline import ExitDeadline
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.server import open_grpc
from penstock.server.server import InferenceServer
from penstock.settings import Feature, GrpcSettings, Restriction
from rpc.native.wire import exchange, head
from rpc.serving import SERVICE, Client, channel_to, connected, infer_request, output

UNKNOWN = b"\xa0\x06\x01"
VALUES = np.arange(100_000, dtype=np.float32)
RESTRICTED = Restriction(frozenset({Feature.TRACE, Feature.INFERENCE}), "key", "secret")


class Kept:
    """Keeps accesses."""

    def __init__(self) -> None:
        self.accesses: list[Access] = []

    def add(self, access: Access) -> None:
        self.accesses.append(access)

    def seen(self) -> list[tuple[str, str, int, str]]:
        return [(one.method, one.status, one.received, one.model) for one in self.accesses]


def typed_request(model: str, values: Any, id: str = "") -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name=model, id=id)
    tensor = message.inputs.add(name="IN", datatype="FP32", shape=[len(values)])
    tensor.contents.fp32_contents.extend(values)
    return message


def sliced(id: str = "") -> bytes:
    """A request that takes some 50 steps."""
    data: bytes = infer_request("identity", id, IN=VALUES[:2]).SerializeToString()
    return data + UNKNOWN * 50_000


def of_many_inputs(id: str) -> pb.ModelInferRequest:
    message = infer_request("identity", id, IN=VALUES[:2])
    for _ in range(4096):
        message.inputs.add(name="IN")
    return message


async def infer(client: Client, data: bytes) -> pb.ModelInferResponse:
    answer = await client.raw(f"/{SERVICE}/ModelInfer", data)
    message: pb.ModelInferResponse = pb.ModelInferResponse.FromString(answer)
    return message


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code(), failed.value.details() or ""


@pytest.mark.asyncio(loop_scope="module")
async def test_typed_contents_of_any_size_are_served(client: Client) -> None:
    answer = await client.call("ModelInfer", typed_request("identity", VALUES))
    np.testing.assert_array_equal(output(answer, "OUT"), VALUES)


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_others_are_answered_between_the_steps(client: Client) -> None:
    done: list[str] = []

    async def noted(name: str, call: Any) -> None:
        await call
        done.append(name)

    large = asyncio.ensure_future(noted("large", infer(client, sliced())))
    await asyncio.sleep(0)
    await noted("small", client.call("ServerLive"))
    await large
    assert done == ["small", "large"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.slow
async def test_cancelled_call_leaves_those_behind_it_their_turns(client: Client) -> None:
    multi = client.channel.unary_unary(f"/{SERVICE}/ModelInfer", bytes, bytes)
    calls = [multi(sliced()) for _ in range(3)]
    await client.call("ServerLive")
    calls[0].cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(answer, bytes) for answer in answers] == [False, True, True]


@pytest.mark.asyncio(loop_scope="module")
async def test_stream_keeps_its_order_and_goes_on_behind_a_refusal(client: Client) -> None:
    requests = [
        typed_request("identity", VALUES, "1"),
        of_many_inputs("2"),
        infer_request("identity", "3", IN=VALUES[:1]),
    ]
    answers = await client.conversation(requests)
    assert [answer.infer_response.id for answer in answers] == ["1", "2", "3"]
    assert [answer.error_message for answer in answers] == [
        "",
        "request has 4097 inputs or more, which exceeds the maximum allowed value of 4096",
        "",
    ]


@pytest.mark.asyncio(loop_scope="module")
async def test_refused_message_has_the_error_of_its_request(client: Client) -> None:
    code, text = await refused(client.call("ModelInfer", of_many_inputs("2")))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text.startswith("request has 4097 inputs or more")


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_large_message_that_cannot_be_parsed_ends_its_call(client: Client) -> None:
    code, text = await refused(infer(client, sliced() + b"\xff"))
    assert (code, text) == (grpc.StatusCode.INTERNAL, "Unable to parse request")


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("method", ["ServerLive", "TraceSetting", "RepositoryModelLoad"])
async def test_message_without_tensors_is_bounded(client: Client, method: str) -> None:
    """So are loads, where models are not loaded by requests."""
    unknown = UNKNOWN * ((1 << 20) // 3)
    code, text = await refused(client.raw(f"/{SERVICE}/{method}", unknown + UNKNOWN))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert text == f"Received message larger than max ({len(unknown) + 3} vs. 1048576)"
    assert await client.raw(f"/{SERVICE}/ServerLive", unknown)


@pytest.mark.asyncio(loop_scope="module")
async def test_limits_of_messages_can_be_set(local: GrpcSettings, server: InferenceServer) -> None:
    settings = replace(local, max_message_size=100_000, max_control_message_size=70_000)
    async with connected(server, settings) as client:
        code, text = await refused(infer(client, UNKNOWN * 33_334))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert text.endswith("Received message larger than max (100002 vs. 100000)")
        code, text = await refused(client.raw(f"/{SERVICE}/ServerLive", UNKNOWN * 30_000))
        assert text == "Received message larger than max (90000 vs. 70000)"
        await client.call("ModelInfer", infer_request("identity", IN=VALUES[:20_000]))


@pytest.mark.asyncio(loop_scope="module")
async def test_load_request_has_few_fields(controller: Client) -> None:
    message = pb.RepositoryModelLoadRequest(model_name="identity")
    for number in range(8192):
        message.parameters[f"file:{number}"].bytes_param = b"12345"
    code, text = await refused(controller.call("RepositoryModelLoad", message))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text == "load request has more than 8192 fields"


@pytest.mark.asyncio(loop_scope="module")
async def test_load_request_may_be_large(controller: Client) -> None:
    message = pb.RepositoryModelLoadRequest(model_name="identity")
    message.parameters["file:1/model"].bytes_param = bytes(2 << 20)
    code, text = await refused(controller.call("RepositoryModelLoad", message))
    assert code is not grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger" not in text


# -- restrictions, before a message is read --------------------------------------------------------


async def _status(port: int, method: str) -> Sequence[tuple[bytes, bytes]]:
    """The fields with the status of a call of which nothing but the head is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    client.send_headers(1, head(f"/{SERVICE}/{method}"))
    try:
        while True:
            for event in await exchange(client, reader, writer):
                fields = getattr(event, "headers", None) or ()
                if any(name == b"grpc-status" for name, _ in fields):
                    return [(bytes(name), bytes(value)) for name, value in fields]
    finally:
        await hang_up(writer)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("method", ["TraceSetting", "ModelInfer", "ModelStreamInfer"])
async def test_head_of_a_restricted_call_is_enough_to_refuse_it(
    local: GrpcSettings, server: InferenceServer, method: str
) -> None:
    settings, kept = replace(local, restrictions=(RESTRICTED,)), Kept()
    async with open_grpc(server, settings, ExitDeadline(1), access=kept) as port:
        fields = await asyncio.wait_for(_status(port, method), 20)
    assert (b"grpc-status", b"14") in fields
    assert kept.seen() == [(method, "UNAVAILABLE", 0, "")]


@pytest.mark.asyncio(loop_scope="module")
async def test_message_of_a_refused_call_is_not_parsed(
    local: GrpcSettings, server: InferenceServer
) -> None:
    async with connected(server, replace(local, restrictions=(RESTRICTED,))) as client:
        code, _ = await refused(client.raw(f"/{SERVICE}/TraceSetting", b"\xff" * 1000))
    assert code is grpc.StatusCode.UNAVAILABLE


# -- the access log --------------------------------------------------------------------------------


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.slow
async def test_lines_of_large_messages_are_as_those_of_others(
    local: GrpcSettings, server: InferenceServer
) -> None:
    kept, data = Kept(), sliced("7")
    async with (
        open_grpc(server, local, ExitDeadline(1), access=kept) as port,
        channel_to(port) as channel,
    ):
        client = Client(channel)
        await infer(client, data)
        await refused(infer(client, data + b"\xff"))
        await refused(client.call("ModelInfer", of_many_inputs("2")))
    assert kept.seen() == [
        ("ModelInfer", "OK", len(data), "identity"),
        ("ModelInfer", "INTERNAL", len(data) + 1, ""),
        ("ModelInfer", "INVALID_ARGUMENT", of_many_inputs("2").ByteSize(), "identity"),
    ]
    assert [one.request_id for one in kept.accesses] == ["7", "", "2"]
