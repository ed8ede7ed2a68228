"""Unary calls over real channels: what the transport makes of them."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from penstock.core.exit_deadline import ExitDeadline
from penstock.rpc.server import OpenTransport
from penstock.settings import GrpcSettings
from rpc.manual import DEADLINES
from rpc.serving import Client, channel_to
from rpc.transports.handlers import NAME, PATIENCE, Handlers, fields, unary

# -- unary calls -----------------------------------------------------------------------------------


async def test_unary_call_is_answered(client: Client) -> None:
    assert (await unary(client, "echo", id="x")).id == "x"


async def test_core_error_becomes_a_status(client: Client) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await unary(client, "refuse", id="no such thing: é\n")
    assert failed.value.code() is grpc.StatusCode.NOT_FOUND
    assert failed.value.details() == "no such thing: é\n"


async def test_want_of_room_tells_when_to_try_again(client: Client) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await unary(client, "have_no_room")
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert dict(fields(failed.value.trailing_metadata()))["retry-after"] == "7"


async def test_fault_becomes_internal_and_is_logged(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await unary(client, "fail")
    assert failed.value.code() is grpc.StatusCode.INTERNAL
    assert "a fault" not in (failed.value.details() or "")
    assert "KeyError: 'a fault'" in caplog.text


async def test_error_text_of_any_length_leaves_the_channel_in_order(client: Client) -> None:
    """Headers have a limit; what matters is the code, and that neighbours are well."""
    with pytest.raises(grpc.aio.AioRpcError):
        await unary(client, "refuse", id="x" * 100_000)
    assert (await unary(client, "echo", id="y")).id == "y"


async def test_metadata_and_deadline_reach_the_method(client: Client, handlers: Handlers) -> None:
    metadata: list[tuple[str, str | bytes]] = [("x-one", "1"), ("x-one", "2"), ("x-bin", b"\0")]
    await client.channel.unary_unary(f"/{NAME}/echo", bytes, bytes)(
        b"", timeout=30.0, metadata=metadata
    )
    (context,) = handlers.contexts
    assert context.metadata["x-one"] == "2"
    assert "x-bin" not in context.metadata
    assert context.deadline is not None
    assert 20 < context.deadline - asyncio.get_running_loop().time() < 31


async def test_call_without_a_deadline_has_none(client: Client, handlers: Handlers) -> None:
    await unary(client, "echo")
    assert handlers.contexts[0].deadline is None


@pytest.mark.contract("GP-21")
async def test_cancel_reaches_the_method(client: Client, handlers: Handlers) -> None:
    call = unary(client, "wait")
    await asyncio.wait_for(handlers.begun.wait(), PATIENCE)
    call.cancel()
    await asyncio.wait_for(handlers.cancelled.wait(), PATIENCE)


@pytest.mark.contract("GP-23")
async def test_deadline_cancels_the_method(client: Client, handlers: Handlers) -> None:
    for seconds in DEADLINES:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await unary(client, "wait", timeout=seconds)
        assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        if handlers.begun.is_set():
            break
    await asyncio.wait_for(handlers.cancelled.wait(), PATIENCE)


async def test_lost_connection_cancels_the_method(
    local: GrpcSettings, serve: OpenTransport, handlers: Handlers
) -> None:
    async with serve([handlers.service()], local, ExitDeadline(1.0)) as port:
        channel = channel_to(port)
        call = unary(Client(channel), "wait")
        await asyncio.wait_for(handlers.begun.wait(), PATIENCE)
        await channel.close(None)
        await asyncio.wait_for(handlers.cancelled.wait(), PATIENCE)
        assert call.cancelled()


# -- metadata and exact errors ---------------------------------------------------------------------


async def test_method_may_send_metadata_before_and_after(client: Client) -> None:
    call = unary(client, "annotate")
    await call
    assert ("x-first", "1") in fields(await call.initial_metadata())
    assert ("x-first", "2") in fields(await call.initial_metadata())
    assert ("x-last-bin", b"\x00\xff") in fields(await call.trailing_metadata())
    assert ("x-last", "3") in fields(await call.trailing_metadata())


async def test_metadata_goes_with_an_error_too(client: Client) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await unary(client, "annotate", id="no")
    assert ("x-first", "1") in fields(failed.value.initial_metadata())
    assert ("x-last-bin", b"\x00\xff") in fields(failed.value.trailing_metadata())


async def test_method_may_end_with_an_exact_status(client: Client) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await unary(client, "refuse_exactly")
    assert failed.value.code() is grpc.StatusCode.OUT_OF_RANGE
    assert failed.value.details() == "too far"
    assert ("grpc-status-details-bin", b"\x08\x0b") in fields(failed.value.trailing_metadata())
    assert ("x-last", "4") in fields(failed.value.trailing_metadata())


async def test_peer_and_all_metadata_are_known(client: Client, handlers: Handlers) -> None:
    metadata: list[tuple[str, str | bytes]] = [("x-one", "1"), ("x-one", "2"), ("x-bin", b"\0")]
    answer = await unary(client, "annotate", metadata=metadata)
    (context,) = handlers.contexts
    assert [field for field in context.metadata_fields if field[0][:2] == "x-"] == metadata
    assert answer.id.startswith("ipv4:127.0.0.1:")
