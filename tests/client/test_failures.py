"""Servers that are not there, that die, or that are something else."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.client_models import write_client_models
from harness.serving import Served, serving
from penstock_client.client import (
    Client,
    ConnectionLostError,
    DeadlineExceededError,
    InvalidArgumentError,
    NoServerError,
    Tls,
    UnavailableError,
)
from rpc.certificates import write_certificates


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Served]:
    """A server that a test may kill."""
    with serving(write_client_models(tmp_path / "models"), tmp_path / "log") as server:
        yield server


@pytest.mark.slow
async def test_a_server_that_dies_ends_its_streams_with_clear_words(mortal: Served) -> None:
    async with (
        Client(mortal.grpc, timeout=30.0) as grpc,
        Client(f"http://{mortal.http}", timeout=30.0) as http,
    ):
        streams = [
            each.generate("story", "a", max_tokens=1, note="/dev/null") for each in (grpc, http)
        ]
        assert [await anext(stream) for stream in streams] == ["a0 ", "a0 "]
        assert await asyncio.to_thread(mortal.stop, signal.SIGKILL) == -signal.SIGKILL
        for stream in streams:
            with pytest.raises(ConnectionLostError, match="ended before the answer did"):
                await anext(stream)
        for client in (grpc, http):
            with pytest.raises(NoServerError, match="is it started"):
                await client.live()


@dataclass(frozen=True, slots=True)
class Silent:
    """Its port, and its connections so far."""

    port: int
    held: list[asyncio.Task[None]]


@pytest.fixture
async def silent() -> AsyncIterator[Silent]:
    """A server that takes connections and sends nothing."""
    held: list[asyncio.Task[None]] = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        finally:
            writer.close()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(asyncio.ensure_future(hold(reader, writer)))

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        yield Silent(server.sockets[0].getsockname()[1], held)
    for connection in held:  # gRPC keeps one that has greeted nobody for long
        connection.cancel()
    await asyncio.gather(*held, return_exceptions=True)


@pytest.mark.parametrize("scheme", ["grpc", "http"])
async def test_a_server_that_takes_calls_and_answers_none_is_waited_for(
    silent: Silent, scheme: str
) -> None:
    """Each question has its own deadline, and the next is asked behind it."""
    async with Client(f"{scheme}://127.0.0.1:{silent.port}", timeout=0.1) as client:
        with pytest.raises(DeadlineExceededError, match=r"the server was not ready within 1 s"):
            await client.wait_ready(timeout=1.0)
    assert silent.held


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["grpc", "http"])
async def test_a_server_too_busy_to_greet_is_waited_for_until_the_deadline(
    silent: Silent, scheme: str
) -> None:
    """It is there, so that nobody is told that it is not; and it is not connected to once more."""
    async with Client(f"{scheme}://127.0.0.1:{silent.port}") as client:
        with pytest.raises(DeadlineExceededError):
            await client.server_metadata(timeout=3.0)
    assert len(silent.held) == 1


@pytest.mark.parametrize("url", ["localhost:1", "http://localhost:1"])
async def test_nobody_at_the_address(url: str) -> None:
    async with Client(url) as client:
        with pytest.raises(NoServerError, match=r"no server answers at .*localhost:1"):
            await client.infer("copy", {})


async def test_ports_of_the_other_protocol(served: Served) -> None:
    async with Client(served.http) as grpc, Client(f"http://{served.grpc}") as http:
        with pytest.raises(NoServerError, match="write http://"):
            await grpc.live()
        with pytest.raises(NoServerError, match="is this its gRPC port"):
            await http.server_metadata()


async def test_who_waited_in_vain_is_told_why(served: Served) -> None:
    async with Client(served.http) as client:
        with pytest.raises(
            DeadlineExceededError, match=r"not ready within 0\.5 s: .*write http://"
        ):
            await client.wait_ready(timeout=0.5)


async def test_a_name_that_no_resolver_knows() -> None:
    async with Client("no-such-host.invalid:1") as client:
        with pytest.raises(NoServerError, match=r"no-such-host\.invalid"):
            await client.live()


async def test_http_without_aiohttp_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(InvalidArgumentError, match=r"penstock-client\[http\]"):
        Client("http://localhost:1")


@pytest.mark.slow
async def test_tls_with_a_clients_certificate(tmp_path: Path) -> None:
    files = write_certificates(tmp_path)
    arguments = [
        "--grpc-use-ssl-mutual=1",
        "--grpc-use-ssl=1",
        f"--grpc-root-cert={files / 'root.pem'}",
    ]
    arguments += [f"--grpc-server-cert={files / 'server.pem'}"]
    arguments += [f"--grpc-server-key={files / 'server.key'}"]
    (tmp_path / "models").mkdir()
    known = Tls(
        ca_file=files / "root.pem", cert_file=files / "client.pem", key_file=files / "client.key"
    )
    with serving(tmp_path / "models", tmp_path / "log", *arguments) as server:
        address = f"localhost:{server.ports['grpc']}"
        async with Client(address, tls=known, timeout=10.0) as client:
            assert await client.live()
        async with Client(address, tls=Tls(ca_file=files / "root.pem"), timeout=10.0) as stranger:
            with pytest.raises(UnavailableError):
                await stranger.live()
