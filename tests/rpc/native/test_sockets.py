"""Listening sockets of the native transport, and their files."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from fakes import until
from harness.outcomes import raises_nothing
from penstock.core.exit_deadline import ExitDeadline
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.native.transport import open_native
from penstock.settings import GrpcSettings
from rpc.native.wire import PATIENCE, Handlers, call, echo


async def test_unix_socket_is_served_and_removed(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'socket'}"
    settings = GrpcSettings(address=address, port=0)
    async with open_native([Handlers().service()], settings, ExitDeadline(1)):
        assert (await echo(address, "x")).id == "x"
    assert not (tmp_path / "socket").exists()


async def test_unix_socket_of_a_server_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(tmp_path / "socket"))
    settings = GrpcSettings(address=f"unix:{tmp_path / 'socket'}", port=0)
    async with open_native([Handlers().service()], settings, ExitDeadline(1)):
        assert (await echo(settings.address, "x")).id == "x"


async def test_unix_socket_of_a_server_that_lives_is_left_to_it(tmp_path: Path) -> None:
    settings = GrpcSettings(address=f"unix:{tmp_path / 'socket'}", port=0)
    async with open_native([Handlers().service()], settings, ExitDeadline(1)):
        with pytest.raises(OSError, match="already in use"):
            async with open_native([], settings, ExitDeadline(0)):
                pass
        assert (await echo(settings.address, "x")).id == "x"


async def test_unix_socket_of_the_next_server_is_left_to_it(tmp_path: Path) -> None:
    """It may start while calls of the previous one are in flight."""
    settings = GrpcSettings(address=f"unix:{tmp_path / 'socket'}", port=0)
    former = Handlers()
    former.let_go.set()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(
            open_native([former.service()], settings, ExitDeadline(PATIENCE))
        )
        lasting = call(grpc.aio.insecure_channel(settings.address), "linger")(
            pb.ModelInferRequest()
        )
        await until(lambda: former.waiting)
        closing = asyncio.create_task(stack.aclose())
        await until(lambda: not Path(settings.address.removeprefix("unix:")).exists())
        async with open_native([Handlers().service()], settings, ExitDeadline(1)):
            assert not closing.done()
            lasting.cancel()
            await closing
            assert (await echo(settings.address, "x")).id == "x"


async def test_file_in_the_place_of_a_unix_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("of somebody")
    settings = GrpcSettings(address=f"unix:{tmp_path / 'file'}", port=0)
    with pytest.raises(OSError, match="already in use"):
        async with open_native([], settings, ExitDeadline(0)):
            pass
    assert (tmp_path / "file").read_text() == "of somebody"


async def test_removed_unix_socket_file_is_not_an_error(tmp_path: Path) -> None:
    settings = GrpcSettings(address=f"unix:{tmp_path / 'socket'}", port=0)
    with raises_nothing():
        async with open_native([], settings, ExitDeadline(0)):
            (tmp_path / "socket").unlink()


async def test_address_that_cannot_be_had_is_not_called_taken(tmp_path: Path) -> None:
    settings = GrpcSettings(address=f"unix:{tmp_path / 'missing' / 'socket'}")
    with pytest.raises(OSError, match="cannot be listened on: No such file or directory"):
        async with open_native([], settings, ExitDeadline(0)):
            pass
