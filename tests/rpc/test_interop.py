"""The interoperability cases of gRPC, by Go's own client where it is installed."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

import grpc
import pytest
import pytest_asyncio

from interop.service import NAME, pb, service
from penstock.core.countdown import Countdown
from penstock.rpc.server import transport
from penstock.settings import GrpcSettings

_PLACES = os.pathsep.join([os.environ.get("PATH", ""), str(Path.home() / "go" / "bin")])
CLIENT = shutil.which("interop-client-go", path=_PLACES) or ""
CASES = """
    empty_unary large_unary client_streaming server_streaming ping_pong empty_stream
    timeout_on_sleeping_server cancel_after_begin cancel_after_first_response
    status_code_and_message special_status_message custom_metadata unimplemented_method
    unimplemented_service
""".split()


@pytest_asyncio.fixture
async def port(local: GrpcSettings) -> AsyncIterator[int]:
    async with transport(local.transport)([service()], local, Countdown(0)) as port:
        yield port


@pytest.mark.skipif(
    not CLIENT,
    reason="no interop-client-go: go install google.golang.org/grpc/interop/client@latest, renamed",
)
@pytest.mark.parametrize("case", CASES)
async def test_client_in_go_is_content(port: int, case: str) -> None:
    process = await asyncio.create_subprocess_exec(
        CLIENT,
        *("--server_host", "127.0.0.1", "--server_port", str(port), "--test_case", case),
        stdout=PIPE,
        stderr=STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, output.decode()


async def unary(port: int, request: Any, **options: Any) -> Any:
    """`UnaryCall` on a channel of its own."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(
            f"/{NAME}/UnaryCall", pb.SimpleRequest.SerializeToString, pb.SimpleResponse.FromString
        )
        return await call(request, **options)


@pytest.mark.parametrize("wanted", [True, False])
async def test_response_is_compressed_if_the_request_asks_for_it(port: int, wanted: bool) -> None:
    request = pb.SimpleRequest(response_size=314_159)
    request.response_compressed.value = wanted
    assert len((await unary(port, request)).payload.body) == 314_159


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_request_is_known_as_one(local: GrpcSettings, compression: Any) -> None:
    """By our transport: the other is not told."""
    settings = replace(local, transport="native")
    async with transport("native")([service()], settings, Countdown(0)) as port:
        request = pb.SimpleRequest(payload=pb.Payload(body=bytes(10_000)), response_size=1)
        request.expect_compressed.value = True
        await unary(port, request, compression=compression)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await unary(port, request)
        assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
