"""Routes of OpenAI's API that only clients with a header may ask, and pages whose scripts may."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from fakes import InstallBackend
from gateway.openai.speaking import CHAT, OPENAI, Speaker, speaking
from gateway.serving import LOCAL
from penstock.cli.compound import OPENAI_GROUPS
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_openai
from penstock.settings import Feature, OpenAiSettings, Restriction

CALLS = {
    Feature.INFERENCE: ("POST", CHAT),
    Feature.MODEL_REPOSITORY: ("GET", "/v1/models"),
    Feature.HEALTH: ("GET", "/health/ready"),
    Feature.METRICS: ("GET", "/metrics"),
    Feature.REQUEST_CONTROL: ("DELETE", "/v1/requests/mine"),
}
PAGE = "http://localhost:3000"


async def page(_: str) -> tuple[bytes, str]:
    return b"nv_inference_count 1", "text/plain"


@asynccontextmanager
async def own_port(
    folder: Path, install: InstallBackend, openai: OpenAiSettings
) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        speaking(folder, install) as (server, _),
        open_openai(server, LOCAL, replace(openai, port=0), page, ExitDeadline(1)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20, verify=False) as client,
    ):
        yield client


def restricted(*features: Feature) -> OpenAiSettings:
    return replace(OPENAI, restrictions=(Restriction(frozenset(features), "Key", "secret"),))


async def statuses(client: httpx.AsyncClient, headers: dict[str, str]) -> dict[Feature, int]:
    return {
        feature: (
            await client.request(method, path, json={"model": "m"}, headers=headers)
        ).status_code
        for feature, (method, path) in CALLS.items()
    }


def _free(feature: Feature) -> int:
    """The status without a restriction: strangers stop no requests."""
    return 403 if feature is Feature.REQUEST_CONTROL else 200


@pytest.mark.contract("OA-20")
@pytest.mark.parametrize("feature", OPENAI_GROUPS)
async def test_restricted_group_wants_its_header_and_no_other_does(
    tmp_path: Path, install_backend: InstallBackend, feature: Feature
) -> None:
    async with own_port(tmp_path, install_backend, restricted(feature)) as client:
        without = await statuses(client, {})
        admitted = await statuses(client, {"key": "secret"})
    assert without == {one: 401 if one is feature else _free(one) for one in OPENAI_GROUPS}
    assert set(admitted.values()) <= {200, 403, 404}


@pytest.mark.parametrize("other", ["secret", "x"])
async def test_a_secret_that_is_sent_twice_is_a_wrong_one(
    tmp_path: Path, install_backend: InstallBackend, other: str
) -> None:
    sent = [("key", "secret"), ("Key", other)]
    group = Feature.MODEL_REPOSITORY
    async with own_port(tmp_path, install_backend, restricted(group)) as client:
        for headers in (sent, sent[::-1]):
            assert (await client.request(*CALLS[group], headers=headers)).status_code == 401


@pytest.mark.contract("OA-20", "OA-23")
@pytest.mark.parametrize("feature", OPENAI_GROUPS)
async def test_refusal_of_a_restricted_call_has_openais_form(
    tmp_path: Path, install_backend: InstallBackend, feature: Feature
) -> None:
    async with own_port(tmp_path, install_backend, restricted(*OPENAI_GROUPS)) as client:
        refused = await client.request(*CALLS[feature], headers={"key": "wrong"})
    assert refused.json()["error"] == {
        "message": "This API is restricted, expecting header 'Key'",
        "type": "authentication_error",
        "param": None,
        "code": "invalid_auth",
    }


@pytest.mark.contract("OA-24")
@pytest.mark.parametrize("do", ["whole", "stream", "refuse"])
async def test_scripts_of_an_allowed_page_may_read_answers(
    tmp_path: Path, install_backend: InstallBackend, do: str
) -> None:
    openai = replace(OPENAI, allowed_origins=(PAGE,))
    async with speaking(tmp_path, install_backend, openai) as (_, client):
        Speaker.go_on.set()
        body = {"model": "m", "do": do}
        allowed = await client.post(CHAT, json=body, headers={"origin": PAGE})
        other = await client.post(CHAT, json=body, headers={"origin": "http://evil.example"})
    assert allowed.headers["access-control-allow-origin"] == PAGE
    assert "access-control-allow-origin" not in other.headers


@pytest.mark.contract("OA-24")
async def test_browser_that_asks_beforehand_is_told(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    openai = replace(restricted(Feature.INFERENCE), allowed_origins=("*",))
    headers = {
        "origin": PAGE,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    async with speaking(tmp_path, install_backend, openai) as (_, client):
        asked = await client.options(CHAT, headers=headers)
        plain = await client.options(CHAT, headers={"origin": PAGE, "key": "secret"})
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-origin"] == PAGE
    assert asked.headers["access-control-allow-headers"] == "authorization,content-type"
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert plain.status_code == 405


@pytest.mark.contract("OA-24")
async def test_no_page_is_allowed_by_default(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    headers = {"origin": PAGE, "access-control-request-method": "POST"}
    async with speaking(tmp_path, install_backend) as (_, client):
        asked = await client.options(CHAT, headers=headers)
    assert asked.status_code == 405
    assert "access-control-allow-origin" not in asked.headers
