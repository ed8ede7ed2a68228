"""What models tell of their applications is part of the description, by kinds of models."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from fakes import InstallBackend, write_model
from gateway.serving import LOCAL, FakeServer, serving
from penstock.core.backend import Backend, WithApplication
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.http_exchange import ASGI_DESCRIPTION, AsgiApp, Message
from penstock.gateway.app import gateway_router, open_gateway
from penstock.gateway.json.helper import JsonHelper
from penstock.gateway.openai.routes import is_answered
from penstock.gateway.openapi.document import document
from penstock.gateway.openapi.model_descriptions import add_models
from penstock.settings import OpenAiSettings

CHAT = "/v1/chat/completions"


def described(title: str, field: str, *paths: str) -> dict[str, Any]:
    """The description of an application that takes one field."""
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Body"}}}}
    operation = {"summary": "ask", "requestBody": body, "responses": {"200": {}}}
    form = {"type": "object", "properties": {field: {"type": "string"}}}
    return {
        "info": {"title": title},
        "paths": {path: {"post": operation} for path in paths or (CHAT,)},
        "components": {"schemas": {"Body": form}},
    }


def merged(**documents: Any) -> dict[str, Any]:
    whole = document(openai=True)
    add_models(whole, documents, is_answered)
    return whole


def body_of(whole: Any, path: str = CHAT) -> Any:
    return whole["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]


def test_models_of_one_kind_share_their_schemas() -> None:
    one = described("Kit", "prompt")
    whole = merged(a=one, b=described("Kit", "prompt"))
    assert body_of(whole) == {"title": "Kit: a, b", "$ref": "#/components/schemas/Kit.Body"}
    assert whole["components"]["schemas"]["Kit.Body"] == one["components"]["schemas"]["Body"]


def test_a_path_of_several_kinds_takes_the_bodies_of_all() -> None:
    whole = merged(
        a=described("Kit", "x"), b=described("vLLM", "y"), c=described("vLLM", "z", "/v1/rerank")
    )
    names = [one["$ref"].rpartition("/")[2] for one in body_of(whole)["anyOf"]]
    assert names == ["Kit.Body", "vLLM.Body"]
    assert body_of(whole, "/v1/rerank")["$ref"].endswith("vLLM2.Body")
    assert "z" in whole["components"]["schemas"]["vLLM2.Body"]["properties"]


def test_paths_that_models_are_not_given_are_left_out() -> None:
    whole = merged(a=described("Kit", "x", "/v1/models", "/admin", "/v1/responses/{id}/cancel"))
    assert "/admin" not in whole["paths"]
    assert "post" not in whole["paths"]["/v1/models"]
    assert "post" in whole["paths"]["/v1/responses/{id}/cancel"]


def test_what_the_server_answers_of_that_api_is_served() -> None:
    router = gateway_router(FakeServer(), LOCAL, JsonHelper(), OpenAiSettings())
    own = document(openai=True)["paths"].keys() - document()["paths"].keys()
    assert {"/v1/models", "/v1/requests/{id}"} <= own
    assert [path for path in own if router._find(path) is None] == []


class Telling(WithApplication, Backend):
    """Its application describes itself as far as the name of the model goes."""

    asked: ClassVar[list[str]] = []

    async def initialize(self, context: Any) -> None:
        self._name = context.config.name

    async def execute(self, requests: Any) -> Any:
        raise AssertionError

    async def openai_app(self) -> AsgiApp | None:
        return None if self._name == "mute" else self._answer

    async def _answer(self, scope: Message, receive: Any, send: Any) -> None:
        assert (scope["method"], scope["path"]) == ("GET", ASGI_DESCRIPTION)
        self.asked.append(self._name)
        text = {"told": b'{"info": {"title": "T"}}', "broken": b"{", "list": b"[1]"}[self._name]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": text})


async def test_models_are_asked_and_need_not_answer(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    install_backend("fake", Telling)
    names = ["told", "mute", "broken", "list"]
    for name in names:
        write_model(tmp_path, name)
    async with serving(tmp_path, names) as server:
        found = await server.openai_descriptions()
        counted = [model.statistics.success.count for model in server.snapshot()]
    assert found == {"told": {"info": {"title": "T"}}}
    assert counted == [0, 0, 0, 0]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_model_is_asked_until_it_has_told(
    tmp_path: Path, install_backend: InstallBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has told goes with it: its next version may tell something else."""
    install_backend("fake", Telling)
    monkeypatch.setattr(Telling, "asked", [])
    names = ["told", "broken"]
    for name in names:
        write_model(tmp_path, name)
    docs = replace(LOCAL, docs=True)
    async with (
        serving(tmp_path, names, explicit_control=True) as server,
        open_gateway(server, docs, ExitDeadline(2), openai=OpenAiSettings()) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False) as client,
    ):
        first, second = [await client.get("/openapi.json") for _ in range(2)]
        before = sorted(Telling.asked)
        write_model(tmp_path, "told", config='parameters { key: "x" value { string_value: "y" } }')
        await server.load("told", {})
        third = await client.get("/openapi.json")
    assert first.json() == second.json() == third.json()
    assert before == ["broken", "broken", "told"]
    assert Telling.asked.count("told") == 2
