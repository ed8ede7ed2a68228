"""The description of the HTTP endpoint says what its routes are."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gateway.serving import LOCAL, FakeServer, connected
from penstock.gateway.app import gateway_router
from penstock.gateway.json.helper import JsonHelper
from penstock.gateway.openapi.document import document
from penstock.gateway.openapi.schemas import SCHEMAS
from penstock.gateway.router import Router

_SAMPLES = {"version": "1"}


@pytest.fixture
def router() -> Router:
    return gateway_router(FakeServer(), LOCAL, JsonHelper())


def _filled(path: str) -> str:
    return re.sub(r"{(\w+)}", lambda found: _SAMPLES.get(found[1], "x"), path)


def _methods() -> dict[str, set[str]]:
    """The methods of each described path."""
    paths = document()["paths"].items()
    return {_filled(path): {method.upper() for method in methods} for path, methods in paths}


def test_what_is_described_is_served(router: Router) -> None:
    for path, methods in _methods().items():
        found = router._find(path)
        assert found is not None, path
        assert set(found[0].methods) == methods, path


def test_what_is_served_is_described(router: Router) -> None:
    """But for repositories with names, which are always refused."""
    described = _methods()
    for pattern, route in router._routes:
        assert any(pattern.fullmatch(path) for path in described), route.path


def test_schemas_that_are_referred_to_exist() -> None:
    found = set(re.findall(r"#/components/schemas/(\w+)", repr(document())))
    assert found == SCHEMAS.keys()


async def test_page_and_document_are_served_where_asked_for() -> None:
    async with connected(FakeServer(), replace(LOCAL, docs=True)) as client:
        page, described = await client.get("/docs"), await client.get("/openapi.json")
    assert described.json() == document()
    assert "connect-src 'self'" in page.headers["content-security-policy"]
    assert not re.search(r"(src|href)=.(https?:)?//", page.text)


async def test_nothing_is_described_unasked() -> None:
    async with connected(FakeServer()) as client:
        assert (await client.get("/docs")).status_code == 404
        assert (await client.get("/openapi.json")).status_code == 404
