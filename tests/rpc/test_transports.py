"""Calls over real channels: what the transport makes of them."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from subprocess import PIPE
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.message import Message

from penstock.core.countdown import Countdown
from penstock.core.errors import NotFoundError
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import Method, RpcContext, Service, StatusError
from penstock.rpc.server import Open, transport
from penstock.rpc.status import StatusCode
from penstock.settings import CompressionLevel, GrpcSettings
from rpc.serving import Client, channel_to

EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
PATIENCE = 20.0
NAME = "test.Service"


class Handlers:
    """Methods that a test calls, and what they saw."""

    def __init__(self) -> None:
        self.contexts: list[RpcContext] = []
        self.cancelled = asyncio.Event()
        self.begun = asyncio.Event()

    def service(self) -> Service:
        request, response = pb.ModelInferRequest, pb.ModelInferResponse
        unary = [self.echo, self.refuse, self.fail, self.wait, self.annotate, self.refuse_exactly]
        streams = [self.echoes, self.flood, self.refuse_late, self.echo_at_once]
        kinds = (
            (False, False, unary),
            (True, False, [self.concatenate]),
            (False, True, [self.count_up]),
            (True, True, streams),
        )
        return Service(
            NAME,
            [
                Method(handler.__name__, request, response, handler, client, server)
                for client, server, handlers in kinds
                for handler in handlers
            ],
        )

    async def echo(self, request: pb.ModelInferRequest, context: RpcContext) -> Message:
        self.contexts.append(context)
        return _echoed(request)

    async def refuse(self, request: pb.ModelInferRequest, _: RpcContext) -> Message:
        raise NotFoundError(request.id)

    async def fail(self, _: pb.ModelInferRequest, __: RpcContext) -> Message:
        raise KeyError("a fault")

    async def wait(self, _: pb.ModelInferRequest, __: RpcContext) -> Message:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        raise AssertionError

    async def annotate(self, request: pb.ModelInferRequest, context: RpcContext) -> Message:
        """Metadata both ways; with an id, an error follows."""
        self.contexts.append(context)
        context.set_initial_metadata([("x-first", "1"), ("x-first", "2")])
        context.set_trailing_metadata([("x-last-bin", b"\x00\xff"), ("x-last", "3")])
        if request.id:
            raise NotFoundError(request.id)
        return pb.ModelInferResponse(id=context.peer)

    async def refuse_exactly(self, _: pb.ModelInferRequest, __: RpcContext) -> Message:
        raise StatusError(StatusCode.OUT_OF_RANGE, "too far", b"\x08\x0b")

    async def count_up(self, request: pb.ModelInferRequest, context: RpcContext) -> None:
        for number in range(int(request.id)):
            await context.write(pb.ModelInferResponse(id=str(number)))

    async def concatenate(self, requests: AsyncIterator[Any], _: RpcContext) -> Message:
        return pb.ModelInferResponse(id="".join([request.id async for request in requests]))

    async def echo_at_once(self, requests: AsyncIterator[Any], context: RpcContext) -> None:
        async for request in requests:
            if not context.write_nowait(_echoed(request)):
                await context.writable()

    async def echoes(self, requests: AsyncIterator[Any], context: RpcContext) -> None:
        async for request in requests:
            await context.write(_echoed(request))

    async def flood(self, _: AsyncIterator[Any], context: RpcContext) -> None:
        try:
            while True:
                await context.write(pb.ModelInferResponse(raw_output_contents=[bytes(1000)]))
        finally:
            self.cancelled.set()

    async def refuse_late(self, requests: AsyncIterator[Any], context: RpcContext) -> None:
        async for request in requests:
            await context.write(_echoed(request))
            raise NotFoundError("enough")


@pytest.fixture
def serve(local: GrpcSettings) -> Open:
    """How to open the transport under test."""
    return transport(local.transport)


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@pytest_asyncio.fixture
async def client(local: GrpcSettings, serve: Open, handlers: Handlers) -> AsyncIterator[Client]:
    async with (
        serve([handlers.service()], local, Countdown(1.0)) as port,
        channel_to(port) as channel,
    ):
        yield Client(channel)


# -- unary calls ----------------------------------------------------------------------------------


async def test_unary_call_is_answered(client: Client) -> None:
    assert (await unary(client, "echo", id="x")).id == "x"


async def test_core_error_becomes_a_status(client: Client) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await unary(client, "refuse", id="no such thing: é\n")
    assert failed.value.code() is grpc.StatusCode.NOT_FOUND
    assert failed.value.details() == "no such thing: é\n"


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
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await unary(client, "wait", timeout=1.0)  # time enough to get there
    assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(handlers.cancelled.wait(), PATIENCE)


async def test_lost_connection_cancels_the_method(
    local: GrpcSettings, serve: Open, handlers: Handlers
) -> None:
    async with serve([handlers.service()], local, Countdown(1.0)) as port:
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


async def test_peer_and_all_metadata_are_known(client: Client, handlers: Handlers) -> None:
    metadata: list[tuple[str, str | bytes]] = [("x-one", "1"), ("x-one", "2"), ("x-bin", b"\0")]
    answer = await unary(client, "annotate", metadata=metadata)
    (context,) = handlers.contexts
    assert [field for field in context.metadata_fields if field[0][:2] == "x-"] == metadata
    assert answer.id.startswith("ipv4:127.0.0.1:")


# -- streams --------------------------------------------------------------------------------------


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


async def test_error_ends_a_stream_after_what_was_written(client: Client) -> None:
    call = stream(client, "refuse_late")
    await call.write(pb.ModelInferRequest(id="x"))
    assert (await call.read()).id == "x"
    assert await call.code() is grpc.StatusCode.NOT_FOUND
    assert await call.details() == "enough"


async def test_client_that_leaves_in_full_flow_ends_the_method_quietly(
    client: Client, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    call = stream(client, "flood")
    for _ in range(100):
        await call.read()
    call.cancel()
    await asyncio.wait_for(handlers.cancelled.wait(), PATIENCE)
    await asyncio.sleep(0.05)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.contract("GP-25")
async def test_write_waits_for_a_slow_reader(client: Client, handlers: Handlers) -> None:
    """The transport takes some, then makes the method wait; memory stays bounded."""
    call = stream(client, "flood")
    await call.read()
    await asyncio.sleep(0.3)
    call.cancel()
    await asyncio.wait_for(handlers.cancelled.wait(), PATIENCE)


# -- messages -------------------------------------------------------------------------------------


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


# -- the endpoint ---------------------------------------------------------------------------------


@pytest.mark.contract("GT-02")
@pytest.mark.parametrize("name", ["grpcio", "native"])
async def test_port_in_use_is_one_clear_error(name: str) -> None:
    """In a process of its own, to see that gRPC itself is silent."""
    program = (
        "import asyncio, sys\n"
        "from penstock.core.countdown import Countdown\n"
        "from penstock.rpc.server import transport\n"
        "from penstock.settings import GrpcSettings\n"
        "settings = GrpcSettings(address='127.0.0.1', port=int(sys.argv[1]))\n"
        "try: asyncio.run(transport(sys.argv[2])([], settings, Countdown(0)).__aenter__())\n"
        "except OSError as error: print(error)"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, str(port), name, stdout=PIPE, stderr=PIPE
        )
        assert await process.communicate() == (
            f"Socket '127.0.0.1:{port}' already in use \n".encode(),
            b"",
        )


async def test_port_of_another_server_of_ours_is_in_use_too(
    local: GrpcSettings, serve: Open
) -> None:
    async with serve([], local, Countdown(0)) as port:
        with pytest.raises(OSError, match="already in use"):
            await opened(serve, replace(local, port=port))


@pytest.mark.contract("GT-02")
async def test_port_can_be_shared_when_it_is_asked_for(local: GrpcSettings, serve: Open) -> None:
    async with serve([], replace(local, reuse_port=True), Countdown(0)) as port:
        assert await opened(serve, replace(local, port=port, reuse_port=True)) == port


async def test_closing_lets_running_calls_finish(
    local: GrpcSettings, serve: Open, handlers: Handlers
) -> None:
    async with serve([handlers.service()], local, Countdown(PATIENCE)) as port:
        channel = channel_to(port)
        call = stream(Client(channel), "echoes")
        await call.write(pb.ModelInferRequest(id="x"))
        await call.read()
        asyncio.get_running_loop().call_later(0.1, lambda: asyncio.ensure_future(finish(call)))
    assert await call.code() is grpc.StatusCode.OK
    await channel.close(None)


async def test_closing_ends_calls_that_outlast_the_grace(
    local: GrpcSettings, serve: Open, handlers: Handlers
) -> None:
    async with serve([handlers.service()], local, Countdown(0.1)) as port:
        channel = channel_to(port)
        call = unary(Client(channel), "wait")
        await asyncio.wait_for(handlers.begun.wait(), PATIENCE)
    await asyncio.wait_for(handlers.cancelled.wait(), PATIENCE)
    with pytest.raises(grpc.aio.AioRpcError):
        await call
    await channel.close(None)


@pytest.mark.contract("GT-05")
@pytest.mark.parametrize("level", list(CompressionLevel))
async def test_responses_are_compressed_as_asked(
    local: GrpcSettings, serve: Open, handlers: Handlers, level: Any
) -> None:
    settings = replace(local, response_compression=level)
    async with (
        serve([handlers.service()], settings, Countdown(1.0)) as port,
        channel_to(port) as channel,
    ):
        assert (await unary(Client(channel), "echo", id="x" * 10_000)).id == "x" * 10_000


@pytest.mark.contract("GT-05")
@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_requests_are_read(client: Client, compression: Any) -> None:
    assert (await unary(client, "echo", id="x" * 10_000, compression=compression)).id[:1] == "x"


# -- helpers --------------------------------------------------------------------------------------


def unary(client: Client, name: str, id: str = "", **options: Any) -> Any:
    return client.channel.unary_unary(
        f"/{NAME}/{name}",
        pb.ModelInferRequest.SerializeToString,
        pb.ModelInferResponse.FromString,
    )(pb.ModelInferRequest(id=id), **options)


def stream(client: Client, name: str) -> Any:
    return client.channel.stream_stream(
        f"/{NAME}/{name}",
        pb.ModelInferRequest.SerializeToString,
        pb.ModelInferResponse.FromString,
    )(None)


def fields(metadata: Any) -> list[tuple[str, str | bytes]]:
    """Metadata as a client of grpc gets it, as a list."""
    return list(metadata)


async def finish(call: Any) -> None:
    await call.done_writing()
    await call.read()


async def opened(serve: Open, settings: GrpcSettings) -> int:
    """Open and close an endpoint without services; its port."""
    async with serve([], settings, Countdown(0)) as port:
        return port


def _echoed(request: pb.ModelInferRequest) -> Message:
    return pb.ModelInferResponse(id=request.id, raw_output_contents=request.raw_input_contents)
