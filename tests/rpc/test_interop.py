"""The interoperability cases of gRPC: clients of the C++ core, and others where they are found."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

import grpc
import pytest
import pytest_asyncio

from interop.cases import CASES, unary
from interop.service import pb, service
from penstock.core.exit_deadline import ExitDeadline
from penstock.rpc.server import transport
from penstock.settings import GrpcSettings
from programs.places import find
from rpc.certificates import tls, write_certificates

GO = find("interop-client-go")
NODE = find("node")
JAVA = os.environ.get("PENSTOCK_INTEROP_JAVA", "")
"""A class path with io.grpc:grpc-interop-testing on it, or a file that holds one."""
_SCRIPT = Path(__file__).parents[1] / "interop" / "client.js"
BASIC = """
    empty_unary large_unary client_streaming server_streaming ping_pong empty_stream
    timeout_on_sleeping_server cancel_after_begin cancel_after_first_response
    status_code_and_message special_status_message custom_metadata unimplemented_method
    unimplemented_service
""".split()
ASKED = "server_compressed_unary server_compressed_streaming".split()
PROBED = "client_compressed_unary client_compressed_streaming".split()
"""These begin with a lie about compression, which only our own transport can find out."""
# The first case over each of grpc-js's and Java's start-ups takes seconds on a busy machine.
_TIMEOUT = 60


@pytest_asyncio.fixture
async def port(local: GrpcSettings) -> AsyncIterator[int]:
    async with transport(local.transport)([service()], local, ExitDeadline(0)) as port:
        yield port


LATE = b"CloseAndRecv() got error code 0, want 1"
"""Output of the Go client when its half-close overtakes its cancel, which is not a fault."""


async def content(*command: str | Path, **environment: str) -> None:
    """Run a client; it says by its exit status whether the server did as it should."""
    done = await _ran(command, environment)
    for _ in range(5):
        if LATE not in done.stdout:
            break
        done = await _ran(command, environment)
    assert done.returncode == 0, done.stdout.decode()


async def _ran(
    command: Sequence[str | Path], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    # Not the loop's own way to start processes: its fork now and then waits for gRPC's threads.
    return await asyncio.to_thread(
        subprocess.run,
        command,
        stdout=PIPE,
        stderr=STDOUT,
        env={**os.environ, **environment},
        timeout=_TIMEOUT,
        check=False,
    )


def _at(port: int, case: str) -> list[str]:
    return ["--server_host=127.0.0.1", f"--server_port={port}", f"--test_case={case}"]


@pytest.mark.needs("gRPC's client in Go", "" if GO else "no interop-client-go: make tools")
@pytest.mark.parametrize("case", BASIC)
async def test_client_in_go_is_content(port: int, case: str) -> None:
    await content(GO, *_at(port, case))


@functools.cache
def modules() -> str:
    """Where @grpc/grpc-js and @grpc/proto-loader are; empty if they are not found."""
    for place in (os.environ.get("NODE_PATH", ""), str(_SCRIPT.parent / "node_modules")):
        if all((Path(place) / "@grpc" / name).is_dir() for name in ("grpc-js", "proto-loader")):
            return place
    return ""


@pytest.mark.needs(
    "gRPC's client in Node",
    ""
    if NODE and modules()
    else "no node with @grpc/grpc-js and @grpc/proto-loader in NODE_PATH (npm install them)",
)
@pytest.mark.parametrize("case", [*BASIC, *ASKED])
async def test_client_in_node_is_content(port: int, case: str) -> None:
    await content(NODE, _SCRIPT, f"127.0.0.1:{port}", case, NODE_PATH=modules())


def class_path() -> str:
    return Path(JAVA).read_text().strip() if Path(JAVA).is_file() else JAVA


@pytest.mark.needs(
    "gRPC's client in Java",
    ""
    if JAVA and find("java")
    else "no java, or no class path of io.grpc:grpc-interop-testing in PENSTOCK_INTEROP_JAVA",
)
@pytest.mark.parametrize("case", [*BASIC, *ASKED, *PROBED])
async def test_client_in_java_is_content(local: GrpcSettings, port: int, case: str) -> None:
    if case in PROBED and local.transport == "grpcio":
        pytest.skip("grpcio does not report whether a request was compressed")
    path = class_path()
    main = "io.grpc.testing.integration.TestServiceClient"
    await content(
        "java", "-XX:TieredStopAtLevel=1", "-cp", path, main, "--use_tls=false", *_at(port, case)
    )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    return write_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("case", CASES)
async def test_client_of_the_core_is_content(port: int, case: str) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await asyncio.wait_for(CASES[case](channel), _TIMEOUT)


@pytest.mark.parametrize("case", CASES)
async def test_client_of_the_core_is_content_over_tls(
    local: GrpcSettings, certificates: Path, case: str
) -> None:
    settings = replace(local, tls=tls(certificates))
    trust = grpc.ssl_channel_credentials((certificates / "root.pem").read_bytes())
    async with (
        transport(local.transport)([service()], settings, ExitDeadline(0)) as port,
        grpc.aio.secure_channel(f"localhost:{port}", trust) as channel,
    ):
        await asyncio.wait_for(CASES[case](channel), _TIMEOUT)


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_request_is_known_as_one(local: GrpcSettings, compression: Any) -> None:
    """By the native transport: grpcio does not report it."""
    settings = replace(local, transport="native")
    async with transport("native")([service()], settings, ExitDeadline(0)) as port:
        request = pb.SimpleRequest(payload=pb.Payload(body=bytes(10_000)), response_size=1)
        request.expect_compressed.value = True
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await unary(channel)(request, compression=compression)
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await unary(channel)(request)
        assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
