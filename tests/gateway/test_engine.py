"""Commands to engines, and their adapters, on a port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from gateway.control_calls import asked_before_the_body
from gateway.serving import FakeServer, connected, serving
from penstock.core.errors import NotFoundError, UnsupportedError
from penstock.models.serving.loaded_model import LoadedModel
from penstock.server.answers import EngineControlled
from penstock.settings import Feature, HttpSettings, Restriction


class EngineServer(FakeServer):
    """Answers with what it was asked; refuses the action `fly`."""

    async def control(
        self, name: str, version: str, action: str, arguments: Mapping[str, Any]
    ) -> EngineControlled:
        if action == "fly":
            raise UnsupportedError("unknown action")
        return EngineControlled(name, version or "1", {"m_0": [action, dict(arguments)]})

    def check_engine_control(self, name: str, version: str) -> LoadedModel:
        if name != "m":
            raise NotFoundError("no such model")
        return cast(LoadedModel, self)


@pytest.fixture
async def engine() -> AsyncIterator[httpx.AsyncClient]:
    async with connected(EngineServer()) as client:
        yield client


async def carried_out(answer: httpx.Response) -> list[Any]:
    """Action and arguments of a command that was carried out."""
    assert answer.status_code == 200
    done: list[Any] = answer.json()["instances"]["m_0"]
    return done


async def test_path_names_the_action_and_the_body_its_arguments(engine: httpx.AsyncClient) -> None:
    answer = await engine.post("/v2/models/m/versions/3/engine/sleep", json={"level": 2})
    assert answer.json() == {
        "model_name": "m",
        "model_version": "3",
        "instances": {"m_0": ["sleep", {"level": 2}]},
    }
    assert await carried_out(await engine.post("/v2/models/m/engine/reset-prefix-cache")) == [
        "reset-prefix-cache",
        {},
    ]


async def test_adapters_are_listed_added_and_removed(engine: httpx.AsyncClient) -> None:
    path = "/v2/models/m/adapters"
    assert await carried_out(await engine.get(path)) == ["list-adapters", {}]
    added = await engine.post(f"{path}/loud", json={"path": "a/b", "name": "other"})
    assert await carried_out(added) == ["add-adapter", {"path": "a/b", "name": "loud"}]
    removed = await engine.delete(f"{path}/loud")
    assert await carried_out(removed) == ["remove-adapter", {"name": "loud"}]


async def test_any_name_reaches_the_backend_which_judges_it(engine: httpx.AsyncClient) -> None:
    answer = await engine.request("POST", "/v2/models/m/adapters/..%2F/x", json={"path": "a"})
    assert await carried_out(answer) == ["add-adapter", {"path": "a", "name": "..%2F/x"}]


@pytest.mark.parametrize("body", [b"[]", b"1", b"null"])
async def test_body_that_is_no_object_is_refused(engine: httpx.AsyncClient, body: bytes) -> None:
    answer = await engine.post("/v2/models/m/engine/sleep", content=body)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("path", "status"), [("other/engine/sleep", 404), ("other/adapters/a", 404)]
)
async def test_unknown_model_is_told_before_the_body_comes(path: str, status: int) -> None:
    assert await asked_before_the_body(EngineServer(), f"/v2/models/{path}") == status


async def test_nothing_is_read_where_engines_are_not_controlled(tmp_path: Path) -> None:
    async with serving(tmp_path, []) as server:
        assert await asked_before_the_body(server, "/v2/models/m/engine/sleep") == 501


async def test_refusal_is_told(engine: httpx.AsyncClient) -> None:
    answer = await engine.post("/v2/models/m/engine/fly")
    assert (answer.status_code, answer.json()) == (501, {"error": "unknown action"})


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "engine/sleep"), ("PUT", "adapters/a"), ("POST", "adapters")]
)
async def test_other_methods_are_refused(engine: httpx.AsyncClient, method: str, path: str) -> None:
    assert (await engine.request(method, f"/v2/models/m/{path}")).status_code == 405


@pytest.mark.parametrize(("headers", "status"), [({}, 403), ({"admin-key": "secret"}, 200)])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "engine/sleep"),
        ("GET", "adapters"),
        ("POST", "adapters/a"),
        ("DELETE", "adapters/a"),
    ],
)
async def test_restriction_covers_all_of_them(
    method: str, path: str, headers: dict[str, str], status: int
) -> None:
    restriction = Restriction(frozenset({Feature.ENGINE_CONTROL}), "admin-key", "secret")
    settings = HttpSettings(address="127.0.0.1", port=0, restrictions=(restriction,))
    async with connected(EngineServer(), settings) as client:
        answer = await client.request(method, f"/v2/models/m/{path}", headers=headers)
    assert answer.status_code == status
