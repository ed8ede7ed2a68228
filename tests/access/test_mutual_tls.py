"""Callers that are known by the certificates of their TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from loadtest.authority import Authority, client_context

from access.models import OPEN, guarded
from access.policies import ALICE, POLICY, bearer, gate
from gateway.serving import LOCAL
from penstock.access.certificate_names import certificate_names, names_of_kinds
from penstock.access.policy_file import parse_policy
from penstock.core.errors import ConfigError
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway
from penstock.rpc.server import open_grpc
from penstock.settings import GrpcSettings, TlsSettings
from rpc.serving import Client
from system.test_certificates import fill, settings

AUTHORITY = Authority()
WORKLOAD, HOST = "spiffe://cluster/ns/research/sa/bob", "Bob.example"
CERTIFIED = POLICY.replace(
    "[callers.bob]\n", f'[callers.bob]\ncertificates = ["{WORKLOAD}", "dns:{HOST}"]\n'
).replace('"group:res*"', '"group:res*", "bob"')


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsSettings:
    return settings(fill(tmp_path_factory.mktemp("tls"), AUTHORITY))


@asynccontextmanager
async def over_grpc(
    files: TlsSettings, transport: Any, repository: Path, pair: tuple[bytes, bytes]
) -> AsyncIterator[Client]:
    local = GrpcSettings(address="127.0.0.1", port=0, transport=transport, tls=files)
    shown = grpc.ssl_channel_credentials(AUTHORITY.pem, pair[1], pair[0])
    async with (
        guarded(repository, gate(CERTIFIED)) as server,
        open_grpc(server, local, ExitDeadline(2)) as port,
        grpc.aio.secure_channel(f"localhost:{port}", shown) as channel,
    ):
        yield Client(channel)


async def code(client: Client, headers: Mapping[str, str]) -> str:
    """How an index is answered."""
    try:
        await client.call("RepositoryIndex", metadata=[*headers.items()])
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


NAMES: list[tuple[dict[str, Any], str]] = [
    ({"uris": [WORKLOAD]}, "OK"),
    ({"dns": [HOST.lower()]}, "OK"),
    ({"uris": ["spiffe://cluster/other"], "dns": ["bob.example"]}, "OK"),
    ({"uris": ["spiffe://cluster/other"], "dns": ["example"]}, "UNAUTHENTICATED"),
    ({"uris": [f"{WORKLOAD}/more"]}, "UNAUTHENTICATED"),
    ({"uris": ["DNS:bob.example"]}, "UNAUTHENTICATED"),
    ({"dns": ["*.example"]}, "UNAUTHENTICATED"),
    ({}, "UNAUTHENTICATED"),
]


@pytest.mark.parametrize("transport", ["native", "grpcio"])
@pytest.mark.parametrize(("names", "expected"), NAMES, ids=[str(one[0]) for one in NAMES])
async def test_a_call_of_grpc_is_let_in_by_its_certificate(
    files: TlsSettings, transport: str, repository: Path, names: dict[str, Any], expected: str
) -> None:
    async with over_grpc(files, transport, repository, AUTHORITY.signed(**names)) as client:
        assert await code(client, {}) == expected


@pytest.mark.parametrize(("names", "expected"), NAMES, ids=[str(one[0]) for one in NAMES])
async def test_a_request_of_http_is_let_in_by_its_certificate(
    files: TlsSettings, repository: Path, names: dict[str, Any], expected: str
) -> None:
    context = client_context(AUTHORITY.pem, AUTHORITY.signed(**names), "http/1.1")
    async with (
        guarded(repository, gate(CERTIFIED)) as server,
        open_gateway(server, replace(LOCAL, tls=files), ExitDeadline(2)) as port,
        httpx.AsyncClient(verify=context, base_url=f"https://localhost:{port}") as client,
    ):
        answer = await client.get(f"/v2/models/{OPEN}")
    assert answer.status_code == (200 if expected == "OK" else 401)


@pytest.mark.parametrize("transport", ["native", "grpcio"])
async def test_a_key_goes_before_a_certificate_and_a_wrong_one_is_none(
    files: TlsSettings, transport: str, repository: Path
) -> None:
    nobody, bob = AUTHORITY.signed(), AUTHORITY.signed(uris=[WORKLOAD])
    async with over_grpc(files, transport, repository, nobody) as client:
        assert await code(client, bearer(ALICE)) == "OK"
    async with over_grpc(files, transport, repository, bob) as client:
        assert await code(client, bearer("wrong")) == "OK"


async def test_a_certificate_without_a_policy_of_it_is_nobody(
    files: TlsSettings, repository: Path
) -> None:
    """Its common name, `leaf`, is no name."""
    named = CERTIFIED.replace("callers.bob", "callers.leaf").replace('"bob"', '"leaf"')
    asked = gate(named)
    assert asked.caller({}, certificate_names({"subject": ((("commonName", "leaf"),),)})) == ""


def test_names_are_of_uris_first() -> None:
    shown = {
        "subjectAltName": (
            ("DNS", "A.b"),
            ("URI", "x://1"),
            ("IP Address", "::1"),
            ("URI", "x://2"),
        )
    }
    assert certificate_names(shown) == ("URI:x://1", "URI:x://2", "DNS:a.b")
    assert certificate_names({}) == certificate_names(None) == ()


def test_a_certificate_of_very_many_names_costs_no_more_than_one_of_some() -> None:
    assert len(names_of_kinds(("DNS", f"{number}") for number in range(10_000))) == 32


@pytest.mark.parametrize(
    "text",
    ["", "bob", "dns:", "dns:a b", "dns:a/b", "dns:a:1", "dns:*.example", "spiffe://*/x", "a://\n"],
)
def test_what_is_no_name_of_a_certificate_is_refused(text: str) -> None:
    written = text.replace("\n", "\\n")
    with pytest.raises(ConfigError, match=r"'callers\.bob\.certificates'"):
        parse_policy(CERTIFIED.replace(WORKLOAD, written))


def test_a_certificate_is_of_one_caller() -> None:
    twice = f'[callers.eve]\ncertificates = ["dns:bob.EXAMPLE"]\n{CERTIFIED}'
    with pytest.raises(ConfigError, match="which is of '"):
        parse_policy(twice)
