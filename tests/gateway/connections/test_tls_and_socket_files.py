"""HTTP over TLS, and on a socket file."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from gateway.clouds.encrypted import statuses_over_tls
from gateway.serving import LOCAL, FakeServer, SilentServer
from harness.raw_clients import hang_up
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway, open_openai
from penstock.settings import OpenAiSettings, TlsSettings
from rpc.certificates import needs_openssl, tls

_INFER = "/v2/models/numbers/infer"
_GENERATE = "/v2/models/numbers/generate"


def _context(certificates: Path, client: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates / "root.pem"))
    if client:
        context.load_cert_chain(certificates / f"{client}.pem", certificates / f"{client}.key")
    return context


@needs_openssl
@pytest.mark.contract("H-33")
async def test_tensors_of_any_size_pass_over_tls(certificates: Path) -> None:
    settings = replace(LOCAL, tls=tls(certificates))
    values = np.arange(1 << 20, dtype=np.float32)
    item = {"name": "IN", "datatype": "FP32", "shape": [values.size], "data": []}
    async with (
        open_gateway(FakeServer(), settings, ExitDeadline(2)) as port,
        httpx.AsyncClient(verify=_context(certificates)) as client,
    ):
        url = f"https://localhost:{port}"
        assert (await client.get(f"{url}/v2/health/live")).status_code == 200
        for count in (3, values.size):
            item |= {"shape": [count], "data": values[:count].tolist()}
            answer = await client.post(f"{url}{_INFER}", json={"inputs": [item]})
            assert answer.json()["outputs"][0]["data"] == values[:count].tolist()


@needs_openssl
async def test_clients_without_a_certificate_are_refused(certificates: Path) -> None:
    settings = replace(LOCAL, tls=tls(certificates, mutual=True))
    async with open_gateway(FakeServer(), settings, ExitDeadline(2)) as port:
        url = f"https://localhost:{port}/v2/health/live"
        async with httpx.AsyncClient(verify=_context(certificates, "client")) as client:
            assert (await client.get(url)).status_code == 200
        async with httpx.AsyncClient(verify=_context(certificates)) as client:
            with pytest.raises(httpx.TransportError):
                await client.get(url)


@needs_openssl
async def test_port_of_openais_api_has_the_same_certificates(certificates: Path) -> None:
    http, openai = replace(LOCAL, tls=tls(certificates, mutual=True)), OpenAiSettings(port=0)

    async def page(_: str) -> tuple[bytes, str]:
        return b"", "text/plain"

    async with (
        open_openai(FakeServer(), http, openai, page, ExitDeadline(1)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False) as plain,
    ):
        statuses = await statuses_over_tls(plain, certificates, "/health/ready")
    assert statuses == (None, None, 200)


@needs_openssl
async def test_certificate_that_is_missing_is_named(certificates: Path) -> None:
    settings = replace(LOCAL, tls=replace(tls(certificates), certificate="/no/such.pem"))
    with pytest.raises(OSError, match=r"^failed to start HTTP service: .*/no/such\.pem"):
        async with open_gateway(FakeServer(), settings, ExitDeadline(0)):
            pass


@pytest.mark.parametrize(("certificate", "missing"), [("", "cert"), ("server.pem", "key")])
async def test_tls_without_its_files_says_which_option_is_missing(
    certificate: str, missing: str
) -> None:
    settings = replace(LOCAL, tls=TlsSettings(enabled=True, certificate=certificate))
    with pytest.raises(OSError, match=rf"^failed to start HTTP service: .*-server-{missing} names"):
        async with open_gateway(FakeServer(), settings, ExitDeadline(0)):
            pass


@needs_openssl
async def test_plain_bytes_on_a_port_with_tls_end_that_connection_only(certificates: Path) -> None:
    settings = replace(LOCAL, tls=tls(certificates))
    async with (
        open_gateway(FakeServer(), settings, ExitDeadline(2)) as port,
        httpx.AsyncClient(verify=_context(certificates)) as client,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"HTTP/1.1 200" not in await asyncio.wait_for(reader.read(), 10)
        await hang_up(writer)
        answer = await client.get(f"https://localhost:{port}/v2/health/live")
    assert answer.status_code == 200


@needs_openssl
async def test_client_that_ends_its_side_of_tls_is_gone(
    certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also behind pipelined requests, which are all answered without TLS; nothing is logged."""
    server = SilentServer()

    def ask(port: int) -> None:
        with (
            socket.create_connection(("localhost", port)) as plain,
            _context(certificates).wrap_socket(plain, server_hostname="localhost") as client,
        ):
            body = b'{"IN": 1.0}'
            head = f"POST {_GENERATE} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            client.sendall(2 * (head.encode() + body))
            client.unwrap()

    settings = replace(LOCAL, tls=tls(certificates))
    async with open_gateway(server, settings, ExitDeadline(2)) as port:
        asking = asyncio.create_task(asyncio.to_thread(ask, port))
        async with asyncio.timeout(20):
            _, stream = await server.asked.get()
            await asking
            while not stream.ended:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert server.asked.empty()
    assert caplog.messages == []


async def test_a_socket_file_is_listened_on_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    settings = replace(LOCAL, address=f"unix:{path}")
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    async with (
        open_gateway(FakeServer(), settings, ExitDeadline(2)) as port,
        httpx.AsyncClient(transport=transport, base_url="http://local", verify=False) as client,
    ):
        assert (await client.get("/v2/health/live")).status_code == 200
        item = {"name": "IN", "datatype": "FP32", "shape": [1], "data": [1.5]}
        answer = await client.post(_INFER, json={"inputs": [item]})
        assert answer.json()["outputs"][0]["data"] == [1.5]
        with pytest.raises(OSError, match="already in use"):
            async with open_gateway(FakeServer(), settings, ExitDeadline(0)):
                pass
    assert port == 0
    assert not path.exists()
