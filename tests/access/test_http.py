"""HTTP behind an access policy: KServe's and OpenAI's routes, and the port of metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from access.models import OPEN, SECRET, guarded
from access.policies import ADMIN, ALICE, BOB, POLICY, bearer, gate
from fakes import InstallBackend
from gateway.openai.speaking import CHAT, OPENAI, speaking
from gateway.serving import LOCAL, connected
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway
from penstock.gateway.metrics import open_metrics
from penstock.protocol.credentials import CREDENTIAL_HEADERS
from penstock.server.seen_models import seen
from penstock.settings import MetricsSettings

_FOR_MODELS = POLICY.replace('models = ["open*"]', 'models = ["x*"]')
BODY = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]}


@asynccontextmanager
async def serving(repository: Path, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with guarded(repository, **options) as server, connected(server) as client:
        yield client


async def test_a_call_is_let_in_by_its_key(repository: Path) -> None:
    async with serving(repository) as client:
        path = f"/v2/models/{OPEN}/infer"
        answer, stranger, wrong, other = [
            await client.post(path, json=BODY, headers=headers)
            for headers in (bearer(ALICE), {}, bearer("no"), bearer(BOB))
        ]
    assert answer.json()["outputs"][0]["data"] == [1]
    assert [stranger.status_code, wrong.status_code, other.status_code] == [401, 401, 403]
    assert stranger.headers["www-authenticate"] == "Bearer"
    assert stranger.content == wrong.content
    assert "www-authenticate" not in other.headers


@pytest.mark.parametrize("header", CREDENTIAL_HEADERS)
@pytest.mark.parametrize("other", [BOB, ALICE, "no"])
async def test_a_key_that_is_sent_twice_is_a_wrong_one(
    repository: Path, header: str, other: str
) -> None:
    """Else a proxy that reads the last one lets in whom the server takes for another."""
    scheme = "Bearer " if header == "authorization" else ""
    sent = [(header, f"{scheme}{ALICE}"), (header.title(), f"{scheme}{other}")]
    async with serving(repository) as client:
        answers = [await client.get("/v2", headers=headers) for headers in (sent, sent[::-1])]
    assert [answer.status_code for answer in answers] == [401, 401]


async def test_the_body_of_a_refused_call_is_not_waited_for(repository: Path) -> None:
    async with guarded(repository) as server, open_gateway(server, LOCAL, ExitDeadline(2)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /v2/models/open/infer HTTP/1.1\r\nhost: h\r\ncontent-length: 9999999\r\n\r\n"
        )
        assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
        writer.close()


@pytest.mark.parametrize("rest", ["", "/config", "/stats", "/infer", "/generate"])
async def test_a_model_that_is_not_seen_is_an_unknown_one(repository: Path, rest: str) -> None:
    method = "POST" if rest in ("/infer", "/generate") else "GET"
    async with serving(repository) as client:
        hidden, absent, known = [
            await client.request(
                method, f"/v2/models/{name}{rest}", headers=bearer(who), content=b"{}"
            )
            for name, who in ((SECRET, ALICE), ("absent", ALICE), (SECRET, ADMIN))
        ]
    assert hidden.status_code == absent.status_code
    assert hidden.text == absent.text.replace("absent", SECRET)
    assert known.text != hidden.text


async def test_lists_have_what_the_caller_sees(repository: Path) -> None:
    async with serving(repository) as client:
        mine = await client.post("/v2/repository/index", headers=bearer(ALICE))
        counted = await client.get("/v2/models/stats", headers=bearer(ALICE))
        ready = await client.get(f"/v2/models/{SECRET}/ready")
    assert [each["name"] for each in mine.json()] == [OPEN]
    assert [each["name"] for each in counted.json()["model_stats"]] == [OPEN]
    assert ready.status_code == 400


async def test_a_preflight_of_a_browser_brings_no_key(repository: Path) -> None:
    asks = {"origin": "https://page", "access-control-request-method": "POST"}
    async with serving(repository) as client:
        answer = await client.request("OPTIONS", f"/v2/models/{OPEN}/infer", headers=asks)
    assert answer.status_code == 405


async def test_openai_s_models_are_those_that_the_caller_sees(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    async with speaking(tmp_path, install_backend) as (server, _):
        server.access = gate(_FOR_MODELS)
        async with (
            open_gateway(seen(server), LOCAL, ExitDeadline(1), openai=OPENAI) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False) as client,
        ):
            admin, alice, stranger = [
                await client.get("/v1/models", headers=headers)
                for headers in (bearer(ADMIN), bearer(ALICE), {})
            ]
            asked = await client.post(CHAT, json={"model": "m"}, headers=bearer(ALICE))
            absent = await client.post(CHAT, json={"model": "n"}, headers=bearer(ALICE))
    assert [len(each.json().get("data", [])) for each in (admin, alice)] == [2, 0]
    assert stranger.status_code == 401
    assert stranger.json()["error"]["type"] == "authentication_error"
    assert stranger.headers["www-authenticate"] == "Bearer"
    assert asked.status_code == absent.status_code == 404
    assert asked.text == absent.text.replace("model: n", "model: m")


async def page(_: str) -> tuple[bytes, str]:
    return b"nv_inference_count 1", "text/plain"


async def test_the_port_of_metrics_asks_too() -> None:
    settings = MetricsSettings(address="127.0.0.1", port=0)
    async with (
        open_metrics(page, settings, gate=gate()) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False) as client,
    ):
        answers = [
            await client.get("/metrics", headers=headers)
            for headers in ({}, bearer(ALICE), bearer(ADMIN))
        ]
    assert [each.status_code for each in answers] == [401, 403, 200]


async def test_an_alias_is_seen_and_set_by_who_sees_its_name_and_its_targets(
    repository: Path,
) -> None:
    paths = {name: f"/v2/repository/aliases/{name}" for name in ("open-a", "secret-a")}
    body = {name: {"targets": [{"model": name}]} for name in (OPEN, SECRET)}
    alice, admin = bearer(ALICE), bearer(ADMIN)
    async with serving(repository, explicit=True) as client:
        for name in (OPEN, SECRET):
            await client.post(f"/v2/repository/models/{name}/load", headers=admin)
        made = [
            await client.post(paths["open-a"], json=body[OPEN], headers=alice),
            await client.post(paths["open-a"], json=body[SECRET], headers=alice),
            await client.post(paths["secret-a"], json=body[OPEN], headers=alice),
            await client.post(paths["secret-a"], json=body[SECRET], headers=admin),
        ]
        assert [one.status_code for one in made] == [200, 403, 403, 200]
        listed = [
            [one["name"] for one in (await client.get("/v2/repository/aliases", headers=h)).json()]
            for h in (alice, admin)
        ]
        assert listed == [["open-a"], ["open-a", "secret-a"]]
        hidden = await client.get(paths["secret-a"], headers=alice)
        nothing = await client.get(paths["secret-a"] + "x", headers=alice)
        assert (hidden.status_code, nothing.status_code) == (404, 404)
        assert hidden.text == nothing.text.replace("secret-ax", "secret-a")
        refused = [
            await client.delete(paths["secret-a"], headers=alice),
            await client.post(paths["secret-a"] + "/rollback", headers=alice),
            await client.post(paths["secret-a"] + "/promote", json={}, headers=alice),
            await client.post(
                paths["open-a"], json={**body[OPEN], "shadow": {"model": SECRET}}, headers=alice
            ),
            await client.post("/v2/models/secret-a/infer", json=BODY, headers=alice),
        ]
        assert [one.status_code for one in refused] == [403, 403, 403, 403, 404]
        answer = await client.post("/v2/models/secret-a/infer", json=BODY, headers=admin)
        assert answer.json()["model_name"] == "secret-a"
