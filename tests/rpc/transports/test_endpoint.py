"""Opening and closing an endpoint."""

from __future__ import annotations

import asyncio
import socket
import sys
from dataclasses import replace
from subprocess import PIPE

import grpc
import pytest

from penstock.core.exit_deadline import ExitDeadline
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.server import OpenTransport
from penstock.settings import GrpcSettings
from rpc.serving import Client, channel_to
from rpc.transports.handlers import PATIENCE, Handlers, finish, opened, stream, unary


@pytest.mark.slow
@pytest.mark.contract("GT-02")
@pytest.mark.parametrize("name", ["grpcio", "native"])
async def test_port_in_use_is_one_clear_error(name: str) -> None:
    """In a process of its own, to see that gRPC itself is silent."""
    program = (
        "import asyncio, sys\n"
        "from penstock.core.exit_deadline import ExitDeadline\n"
        "from penstock.rpc.server import transport\n"
        "from penstock.settings import GrpcSettings\n"
        "settings = GrpcSettings(address='127.0.0.1', port=int(sys.argv[1]))\n"
        "try: asyncio.run(transport(sys.argv[2])([], settings, ExitDeadline(0)).__aenter__())\n"
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
    local: GrpcSettings, serve: OpenTransport
) -> None:
    async with serve([], local, ExitDeadline(0)) as port:
        with pytest.raises(OSError, match="already in use"):
            await opened(serve, replace(local, port=port))


@pytest.mark.contract("GT-02")
async def test_port_can_be_shared_on_request(local: GrpcSettings, serve: OpenTransport) -> None:
    async with serve([], replace(local, reuse_port=True), ExitDeadline(0)) as port:
        assert await opened(serve, replace(local, port=port, reuse_port=True)) == port


async def test_closing_lets_running_calls_finish(
    local: GrpcSettings, serve: OpenTransport, handlers: Handlers
) -> None:
    async with serve([handlers.service()], local, ExitDeadline(PATIENCE)) as port:
        channel = channel_to(port)
        call = stream(Client(channel), "echoes")
        await call.write(pb.ModelInferRequest(id="x"))
        await call.read()
        asyncio.get_running_loop().call_later(0.1, lambda: asyncio.ensure_future(finish(call)))
    assert await call.code() is grpc.StatusCode.OK
    await channel.close(None)


async def test_closing_ends_calls_that_outlast_the_grace(
    local: GrpcSettings, serve: OpenTransport, handlers: Handlers
) -> None:
    async with serve([handlers.service()], local, ExitDeadline(0.1)) as port:
        channel = channel_to(port)
        call = unary(Client(channel), "wait")
        await asyncio.wait_for(handlers.begun.wait(), PATIENCE)
    await asyncio.wait_for(handlers.cancelled.wait(), PATIENCE)
    with pytest.raises(grpc.aio.AioRpcError):
        await call
    await channel.close(None)
