"""Limits on what one client can make the native transport hold: bytes, calls, metadata."""

from __future__ import annotations

import asyncio

import grpc
import h2.config
import h2.connection
import h2.events
import pytest

from harness.raw_clients import hang_up
from harness.standstill import standstill
from penstock.core.exit_deadline import ExitDeadline
from penstock.http2.frames import Limits
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.native.transport import open_native
from rpc.native.wire import LOCAL, PATIENCE, Handlers, call, exchange, head, wire


async def test_slow_reader_holds_no_more_than_its_bounds() -> None:
    """Of 1,000 streams whose client reads nothing, each has a window and one message written."""
    handlers = Handlers()
    async with open_native([handlers.service()], LOCAL, ExitDeadline(0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        client.initiate_connection()
        await exchange(client, reader, writer)
        for _ in range(1000):
            stream = client.get_next_available_stream_id()
            client.send_headers(stream, head("/s/flood"))
            client.send_data(stream, bytes(5), end_stream=True)
        writer.write(client.data_to_send())
        await standstill(lambda: handlers.written)
        # The window of the connection, which all of them share, and one message of each.
        assert handlers.written * 1000 <= 65_535 + 1000 * 1100 + (64 << 10)
        await hang_up(writer)


@pytest.mark.slow
async def test_calls_that_follow_a_mass_cancel_are_not_refused() -> None:
    """One client gives up 1,000 calls and begins 1,000 others at once, while those still work."""
    handlers = Handlers()
    async with (
        open_native([handlers.service()], LOCAL, ExitDeadline(0)) as port,
        wire(port, handlers) as client,
    ):
        given_up = client.begin(1000, "/s/linger")
        await client.until(lambda: handlers.waiting == 1000)
        client.cancel(given_up)
        following = client.begin(1000, "/s/linger")
        await client.until(lambda: handlers.begun + len(client.refused) == 2000)
        assert (client.refused, handlers.lingering) == ([], 1000)
        handlers.let_go.set()
        client.cancel(following)
        await client.until(lambda: not handlers.waiting and not handlers.lingering)


async def test_calls_that_linger_have_a_bound() -> None:
    """A client that gives up calls faster than they can end is refused, and no longer than that."""
    handlers = Handlers()
    limits = Limits(max_concurrent_streams=10, max_lingering_streams=15)
    async with (
        open_native([handlers.service()], LOCAL, ExitDeadline(0), limits) as port,
        wire(port, handlers) as client,
    ):
        for begun in (10, 10):
            calls = client.begin(begun, "/s/linger")
            await client.until(lambda: handlers.waiting == begun)  # noqa: B023
            client.cancel(calls)
            await client.until(lambda: not handlers.waiting)
        client.begin(5, "/s/linger")
        await client.until(lambda: len(client.refused) == 5)
        assert handlers.lingering == 20
        handlers.let_go.set()
        await client.until(lambda: not handlers.lingering)
        client.begin(5, "/s/linger")
        await client.until(lambda: handlers.waiting == 5)


async def test_message_larger_than_allowed_ends_its_method() -> None:
    handlers = Handlers()
    limits = Limits(max_message_size=1000)
    async with (
        open_native([handlers.service()], LOCAL, ExitDeadline(1), limits) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        stream = channel.stream_unary(
            "/s/listen", pb.ModelInferRequest.SerializeToString, pb.ModelInferResponse.FromString
        )(iter([pb.ModelInferRequest(id="x" * 2000)]))
        assert await stream.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await asyncio.wait_for(handlers.ended.wait(), PATIENCE)
        assert (await call(channel, "echo")(pb.ModelInferRequest(id="y"))).id == "y"


@pytest.mark.contract("GT-01")
async def test_response_that_no_client_takes_is_an_error() -> None:
    async with (
        open_native([Handlers().service()], LOCAL, ExitDeadline(1)) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(channel, "burst")(pb.ModelInferRequest())
        assert refused.value.details() == (
            "Response has byte size 3221225472 which exceeds gRPC's byte size limit 2147483647."
        )


async def test_metadata_larger_than_allowed_is_refused_for_that_call_only() -> None:
    """Within the block that the frames may have, so that the connection lives on."""
    limits = Limits(max_header_list_size=4096)
    options = [("grpc.max_metadata_size", 1 << 20)]
    async with (
        open_native([Handlers().service()], LOCAL, ExitDeadline(1), limits) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel,
    ):
        large = [(f"x-{n}", "v") for n in range(120)]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(channel, "echo")(pb.ModelInferRequest(), metadata=large)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await call(channel, "echo")(pb.ModelInferRequest(id="y"))).id == "y"
