"""Streaming calls over real channels."""

from __future__ import annotations

import asyncio
import logging

import grpc
import pytest

from harness.standstill import standstill
from penstock.protocol import grpc_service_pb2 as pb
from rpc.serving import Client
from rpc.transports.handlers import EOF, NAME, PATIENCE, Handlers, stream


async def test_stream_goes_both_ways(client: Client) -> None:
    call = stream(client, "echoes")
    for number in range(100):
        await call.write(pb.ModelInferRequest(id=str(number)))
        assert (await call.read()).id == str(number)
    await call.done_writing()
    assert await call.read() is EOF
    assert await call.code() is grpc.StatusCode.OK


@pytest.mark.parametrize("count", [0, 1, 100])
async def test_one_request_gets_many_responses(client: Client, count: int) -> None:
    call = client.channel.unary_stream(
        f"/{NAME}/count_up",
        pb.ModelInferRequest.SerializeToString,
        pb.ModelInferResponse.FromString,
    )(pb.ModelInferRequest(id=str(count)))
    assert [response.id async for response in call] == list(map(str, range(count)))


@pytest.mark.parametrize("count", [0, 1, 100])
async def test_many_requests_get_one_response(client: Client, count: int) -> None:
    call = client.channel.stream_unary(
        f"/{NAME}/concatenate",
        pb.ModelInferRequest.SerializeToString,
        pb.ModelInferResponse.FromString,
    )(pb.ModelInferRequest(id=str(number)) for number in range(count))
    assert (await call).id == "".join(map(str, range(count)))


async def test_responses_can_be_written_without_waiting(client: Client) -> None:
    call = stream(client, "echo_at_once")
    for number in range(100):
        await call.write(pb.ModelInferRequest(id=str(number)))
    await call.done_writing()
    assert [response.id async for response in call] == list(map(str, range(100)))


async def test_error_ends_a_stream_after_its_written_messages(client: Client) -> None:
    call = stream(client, "refuse_late")
    await call.write(pb.ModelInferRequest(id="x"))
    assert (await call.read()).id == "x"
    assert await call.code() is grpc.StatusCode.NOT_FOUND
    assert await call.details() == "enough"


async def test_client_that_leaves_in_full_flow_cancels_the_handler_quietly(
    client: Client, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    call = stream(client, "flood")
    for _ in range(100):
        await call.read()
    call.cancel()
    await asyncio.wait_for(handlers.cancelled.wait(), PATIENCE)
    later = stream(client, "echo_at_once")
    await later.done_writing()
    assert [response async for response in later] == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.slow
@pytest.mark.contract("GP-25")
async def test_write_waits_for_a_slow_reader(client: Client, handlers: Handlers) -> None:
    """The transport takes some megabytes, then makes the method wait."""
    call = stream(client, "flood")
    await call.read()
    await standstill(lambda: handlers.written)
    call.cancel()
    await asyncio.wait_for(handlers.cancelled.wait(), PATIENCE)


@pytest.mark.slow
@pytest.mark.contract("N-03")
async def test_stream_whose_reader_stood_still_goes_on(client: Client, handlers: Handlers) -> None:
    """It is neither cancelled nor does it end: what was written comes, and more."""
    call = stream(client, "flood")
    await call.read()
    await standstill(lambda: handlers.written)
    held = handlers.written
    assert EOF not in [await call.read() for _ in range(held)]
    assert handlers.written > held
    assert not call.done()
    assert not handlers.cancelled.is_set()
    call.cancel()
    await asyncio.wait_for(handlers.cancelled.wait(), PATIENCE)
