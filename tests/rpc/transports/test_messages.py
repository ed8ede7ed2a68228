"""Messages of any size and form, compressed or not, over real channels."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import grpc
import pytest

from penstock.core.exit_deadline import ExitDeadline
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.server import OpenTransport
from penstock.settings import CompressionLevel, GrpcSettings
from rpc.serving import Client, channel_to
from rpc.transports.handlers import NAME, Handlers, unary
from rpc.transports.relay import relayed

# -- messages --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.contract("GT-01")
async def test_message_of_64_mib_passes_both_ways(client: Client) -> None:
    data = bytes(range(256)) * (64 << 12)
    request = pb.ModelInferRequest(raw_input_contents=[data])
    answer = await client.channel.unary_unary(
        f"/{NAME}/echo",
        pb.ModelInferRequest.SerializeToString,
        pb.ModelInferResponse.FromString,
    )(request)
    assert answer.raw_output_contents[0] == data


async def test_empty_message_is_one_like_others(client: Client) -> None:
    assert await client.raw(f"/{NAME}/echo") == b""


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"\x0a\x02\xff\xfe", b"\x3a\x7f"])
async def test_bytes_that_are_no_message_are_refused(client: Client, data: bytes) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await client.raw(f"/{NAME}/echo", data)
    assert failed.value.code() is grpc.StatusCode.INTERNAL
    assert failed.value.details() == "Unable to parse request"


async def test_bytes_that_are_no_message_end_a_stream(client: Client) -> None:
    call = client.channel.stream_stream(f"/{NAME}/echoes", bytes, bytes)(None)
    await call.write(b"")
    await call.write(b"\xff\xff\xff")
    assert await call.read() == b""
    assert await call.code() is grpc.StatusCode.INTERNAL
    assert await call.details() == "Unable to parse request"


async def test_refused_bytes_are_no_fault_to_be_logged(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await client.raw(f"/{NAME}/echo", b"\xff\xff\xff")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    "path",
    [
        f"/{NAME}/nothing",
        "/other.Service/echo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ],
)
async def test_unknown_method_is_unimplemented(client: Client, path: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await client.raw(path)
    assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


# -- compression -----------------------------------------------------------------------------------


@pytest.mark.contract("GT-05")
@pytest.mark.parametrize("level", list(CompressionLevel))
async def test_responses_are_compressed_as_asked(
    local: GrpcSettings, serve: OpenTransport, handlers: Handlers, level: Any
) -> None:
    settings = replace(local, response_compression=level)
    async with (
        serve([handlers.service()], settings, ExitDeadline(1.0)) as port,
        relayed(port) as relay,
        channel_to(relay.port) as channel,
    ):
        assert (await unary(Client(channel), "echo", id="x" * 10_000)).id == "x" * 10_000
        assert (relay.received < 5_000) == (level is not CompressionLevel.NONE)


@pytest.mark.contract("GT-05")
@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_requests_are_read(
    local: GrpcSettings, serve: OpenTransport, handlers: Handlers, compression: Any
) -> None:
    async with (
        serve([handlers.service()], local, ExitDeadline(1.0)) as port,
        relayed(port) as relay,
        channel_to(relay.port) as channel,
    ):
        answer = await unary(Client(channel), "echo", id="x" * 10_000, compression=compression)
        assert answer.id == "x" * 10_000
        assert relay.sent < 5_000
