"""What models tell of their applications is part of the description, by kinds of models."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from fakes import InstallBackend, write_model
from gateway.serving import LOCAL, FakeServer, serving
from penstock.core.backend import Backend
from penstock.core.http_exchange import ASGI_DESCRIPTION, AsgiApp, Message
from penstock.gateway.app import gateway_router
from penstock.gateway.json.thread import JsonThread
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
    router = gateway_router(FakeServer(), LOCAL, JsonThread(), OpenAiSettings())
    own = document(openai=True)["paths"].keys() - document()["paths"].keys()
    assert {"/v1/models", "/v1/requests/{id}"} <= own
    assert [path for path in own if router._find(path) is None] == []


class Telling(Backend):
    """Its application describes itself as far as the name of the model goes."""

    async def initialize(self, context: Any) -> None:
        self._name = context.config.name

    async def execute(self, requests: Any) -> Any:
        raise AssertionError

    async def openai_app(self) -> AsgiApp | None:
        return None if self._name == "mute" else self._answer

    async def _answer(self, scope: Message, receive: Any, send: Any) -> None:
        assert (scope["method"], scope["path"]) == ("GET", ASGI_DESCRIPTION)
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
