"""Further names of models in OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from fakes import InstallBackend
from gateway.openai.speaking import CHAT, OPENAI, Speaker, speaking
from gateway.serving import LOCAL

ALIASES = {"gpt": "m", "noisy": "m:loud", "other": "m", "gone": "lost", "v:2": "m"}


@pytest_asyncio.fixture
async def client(
    tmp_path: Path, install_backend: InstallBackend
) -> AsyncIterator[httpx.AsyncClient]:
    openai = replace(OPENAI, aliases=ALIASES)
    async with speaking(tmp_path, install_backend, openai, LOCAL, "other") as (_, client):
        yield client


@pytest.mark.contract("OA-19")
@pytest.mark.parametrize(
    ("named", "model", "adapter"),
    [
        ("gpt", "m", None),
        ("gpt:loud", "m", "loud"),
        ("noisy", "m", "loud"),
        ("v:2", "m", None),
        ("other", "other", None),  # a model hides an alias of its name
    ],
)
async def test_alias_stands_for_its_model(
    client: httpx.AsyncClient, named: str, model: str, adapter: str | None
) -> None:
    answer = await client.post(CHAT, json={"model": named, "n": 1})
    (request,) = Speaker.requests
    full = model if adapter is None else f"{model}:{adapter}"
    assert (answer.status_code, request.model_name) == (200, model)
    assert request.parameters.get("adapter") == adapter
    assert request.parameters["model"] == full
    assert request.exchange is not None
    assert json.loads(request.exchange.body) == {"model": full, "n": 1}


async def test_alias_in_a_form_stands_for_its_model(client: httpx.AsyncClient) -> None:
    files = {"file": ("a.wav", b"RIFF")}
    answer = await client.post("/v1/audio/transcriptions", data={"model": "noisy"}, files=files)
    (request,) = Speaker.requests
    assert request.exchange is not None
    assert answer.status_code == 200
    assert b'name="model"\r\n\r\nm:loud\r\n--' in request.exchange.body


async def test_alias_in_a_query_stands_for_its_model(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/responses/resp_1?model=gpt")).status_code == 200
    assert Speaker.requests[0].model_name == "m"


async def test_alias_of_a_missing_model_says_so(client: httpx.AsyncClient) -> None:
    answer = await client.post(CHAT, json={"model": "gone"})
    assert answer.status_code == 404
    told = answer.json()["error"]["message"]
    assert told == "Unknown model: lost, of which 'gone' is an alias"


async def test_aliases_of_what_is_ready_are_listed(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/v1/models")).json()["data"]
    names = {one["id"]: one.get("root") for one in listed}
    assert names == {
        "m": None,
        "m:loud": None,
        "other": None,
        "other:loud": None,
        "gpt": "m",
        "noisy": "m:loud",
        "v:2": "m",
    }


@pytest.mark.parametrize(
    ("name", "root"), [("gpt", "m"), ("noisy", "m:loud"), ("gpt:loud", "m:loud"), ("other", None)]
)
async def test_alias_is_told_as_a_model(
    client: httpx.AsyncClient, name: str, root: str | None
) -> None:
    told = (await client.get(f"/v1/models/{name}")).json()
    assert (told["id"], told.get("root")) == (name, root)


@pytest.mark.parametrize("name", ["gone", "gpt:lost"])
async def test_alias_of_nothing_is_not_told(client: httpx.AsyncClient, name: str) -> None:
    assert (await client.get(f"/v1/models/{name}")).status_code == 404
