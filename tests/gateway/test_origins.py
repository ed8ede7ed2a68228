"""Calls that change the server, by web pages: every route but inference's is closed to them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from gateway.serving import LOCAL, FakeServer
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import gateway_router, open_gateway, open_openai
from penstock.gateway.json.helper import JsonHelper
from penstock.gateway.openapi.document import document
from penstock.settings import OpenAiSettings

PAGE, EVIL = "http://page.example:3000", "http://evil.example"
OPENAI = OpenAiSettings(allowed_origins=(PAGE, "*"))
CHANGING = ("POST", "PUT", "PATCH", "DELETE")
LOAD = "/v2/repository/models/numbers/load"
OPEN = {
    "/v2/models/x/infer",
    "/v2/models/x/versions/1/infer",
    "/v2/models/x/generate",
    "/v2/models/x/versions/1/generate",
    "/v2/models/x/generate_stream",
    "/v2/models/x/versions/1/generate_stream",
    "/v1/completions",
    "/v1/responses/x",
    "/v1/responses/x/cancel",
    "/v1/elsewhere",
}
"""What any page may ask: inference. A route that is not here must be closed."""


def _paths() -> list[str]:
    """A path of every route."""
    described = document(openai=True)["paths"]
    filled = {re.sub(r"{(\w+)}", lambda m: "1" if m[1] == "version" else "x", p) for p in described}
    return sorted(filled | OPEN | {"/docs", "/openapi.json"})


async def _page(_: str) -> tuple[bytes, str]:
    return b"", "text/plain"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    settings = replace(LOCAL, docs=True)
    async with (
        open_gateway(FakeServer(), settings, ExitDeadline(1), openai=OPENAI) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False) as client,
    ):
        yield client


async def _is_refused(client: httpx.AsyncClient, method: str, path: str, origin: str) -> bool:
    answer = await client.request(method, path, headers={"origin": origin}, content=b"{}")
    return answer.status_code == 403 and f"web pages of '{origin}' may not" in answer.text


@pytest.mark.parametrize("path", _paths())
async def test_every_route_but_inference_is_closed_to_pages_elsewhere(
    client: httpx.AsyncClient, path: str
) -> None:
    refused = {method for method in CHANGING if await _is_refused(client, method, path, EVIL)}
    assert refused == (set() if path in OPEN else set(CHANGING))


def test_every_route_is_asked_above() -> None:
    router = gateway_router(FakeServer(), replace(LOCAL, docs=True), JsonHelper(), OPENAI)
    paths = _paths()
    for pattern, route in router._routes:
        assert any(pattern.fullmatch(path) for path in paths), route.path


@pytest.mark.parametrize("path", ["/v1/models/x/load", "/v1/requests/x", "/metrics"])
async def test_port_of_openais_api_is_closed_to_pages_elsewhere(path: str) -> None:
    async with (
        open_openai(FakeServer(), LOCAL, replace(OPENAI, port=0), _page, ExitDeadline(1)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False) as client,
    ):
        assert await _is_refused(client, "POST", path, EVIL)
        assert not await _is_refused(client, "POST", path, PAGE)


@pytest.mark.parametrize("content_type", ["text/plain", "application/json", ""])
async def test_no_content_type_opens_a_route(client: httpx.AsyncClient, content_type: str) -> None:
    headers = {"origin": EVIL, "content-type": content_type}
    assert (await client.post(LOAD, content=b"{}", headers=headers)).status_code == 403


async def test_named_pages_and_those_of_this_server_may_change_it(
    client: httpx.AsyncClient,
) -> None:
    own = f"http://127.0.0.1:{client.base_url.port}"
    for origin in (PAGE, own):
        assert (await client.post(LOAD, headers={"origin": origin})).status_code == 200


@pytest.mark.parametrize(
    "origin", ["null", "", "127.0.0.1", "http://127.0.0.1", "http://127.0.0.1:1", "*", f"{PAGE}0"]
)
async def test_what_only_looks_like_them_may_not(client: httpx.AsyncClient, origin: str) -> None:
    assert (await client.post(LOAD, headers={"origin": origin})).status_code == 403


async def test_clients_that_are_no_pages_may(client: httpx.AsyncClient) -> None:
    assert (await client.post(LOAD)).status_code == 200


async def test_pages_may_read_as_before(client: httpx.AsyncClient) -> None:
    """Browsers themselves keep what they read from their scripts."""
    answer = await client.get("/v2", headers={"origin": EVIL})
    assert answer.status_code == 200


@pytest.mark.parametrize(("origin", "host"), [("null", ""), ("://x", "x"), ("ftp://x", "x")])
async def test_what_is_no_page_of_a_host_is_none_of_this_server(
    client: httpx.AsyncClient, origin: str, host: str
) -> None:
    answer = await client.post(LOAD, headers={"origin": origin, "host": host}, content=b"{}")
    assert answer.status_code == 403
