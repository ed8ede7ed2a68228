"""The model repository on a port."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import Any

import httpx
import pytest

from gateway.serving import LOCAL, FakeServer, connected
from penstock.server.answers import ModelIndexEntry
from penstock.server.control_policy import ControlPolicy
from penstock.settings import Feature, Restriction

_MODEL = "/v2/repository/models/numbers"


@pytest.mark.contract("H-13")
async def test_index_leaves_out_empty_members(
    client: httpx.AsyncClient, server: FakeServer
) -> None:
    server.entries = (
        ModelIndexEntry("a"),
        ModelIndexEntry("b", "1", "READY"),
        ModelIndexEntry("c", "2", "UNAVAILABLE", "unloaded"),
    )
    answer = await client.post("/v2/repository/index")
    assert answer.json() == [
        {"name": "a"},
        {"name": "b", "version": "1", "state": "READY"},
        {"name": "c", "version": "2", "state": "UNAVAILABLE", "reason": "unloaded"},
    ]


@pytest.mark.contract("H-13")
async def test_index_can_be_of_ready_models(client: httpx.AsyncClient, server: FakeServer) -> None:
    server.entries = (ModelIndexEntry("a"), ModelIndexEntry("b", "1", "READY"))
    answer = await client.post("/v2/repository/index", json={"ready": True})
    assert [entry["name"] for entry in answer.json()] == ["b"]


@pytest.mark.contract("H-14")
@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"parameters":{}}'])
async def test_load_without_parameters(
    client: httpx.AsyncClient, server: FakeServer, body: bytes
) -> None:
    answer = await client.post(f"{_MODEL}/load", content=body)
    assert (answer.status_code, answer.content, server.loaded) == (200, b"", [("numbers", {})])


@pytest.mark.contract("H-14")
async def test_load_with_a_configuration_and_files(
    client: httpx.AsyncClient, server: FakeServer
) -> None:
    files = {"file:1/model.bin": b64encode(b"\0\1").decode()}
    await client.post(f"{_MODEL}/load", json={"parameters": {"config": "{}", **files}})
    assert server.loaded == [("numbers", {"config": "{}", "file:1/model.bin": b"\0\1"})]


@pytest.mark.parametrize(
    ("parameters", "status", "text"),
    [
        ([], 500, "attempt to get members for non-object"),
        ({"config": {}}, 500, "attempt to access JSON non-string as string"),
        ({"other": "x"}, 500, "unexpected error on creating Triton parameter"),
        ({"file:1/x": "!"}, 400, "load parameter 'file:1/x' is not base64: "),
    ],
)
async def test_load_with_something_else_is_refused(
    client: httpx.AsyncClient, server: FakeServer, parameters: Any, status: int, text: str
) -> None:
    answer = await client.post(f"{_MODEL}/load", json={"parameters": parameters})
    assert (answer.status_code, server.loaded) == (status, [])
    assert answer.json()["error"].startswith(text)


_FILE = {"parameters": {"config": "{}", "file:1/model.py": b64encode(b"x").decode()}}
_ADMIN = Restriction(frozenset({Feature.MODEL_REPOSITORY}), "admin", "secret")


async def test_files_of_strangers_are_refused_with_what_would_allow_them(
    server: FakeServer,
) -> None:
    server.control_policy = ControlPolicy()
    async with connected(server) as client:
        answer = await client.post(f"{_MODEL}/load", json=_FILE)
    assert (answer.status_code, server.loaded) == (501, [])
    assert answer.json()["error"].startswith("load parameter 'file:1/model.py' is refused: ")
    assert "--allow-model-upload=true" in answer.json()["error"]


async def test_configurations_need_no_leave(server: FakeServer) -> None:
    server.control_policy = ControlPolicy()
    async with connected(server) as client:
        await client.post(f"{_MODEL}/load", json={"parameters": {"config": "{}"}})
    assert server.loaded == [("numbers", {"config": "{}"})]


async def test_who_knows_the_secret_may_bring_files(server: FakeServer) -> None:
    server.control_policy = ControlPolicy()
    async with connected(server, replace(LOCAL, restrictions=(_ADMIN,))) as client:
        answer = await client.post(f"{_MODEL}/load", json=_FILE, headers={"admin": "secret"})
        stranger = await client.post(f"{_MODEL}/load", json=_FILE)
    assert (answer.status_code, stranger.status_code) == (200, 403)
    assert server.loaded == [("numbers", {"config": "{}", "file:1/model.py": b"x"})]


async def test_configurations_of_strangers_are_not_trusted(server: FakeServer) -> None:
    server.control_policy = ControlPolicy()
    async with connected(server, LOCAL) as strangers:
        await strangers.post(f"{_MODEL}/load", json={"parameters": {"config": "{}"}})
    assert not server.trusted
    async with connected(server, replace(LOCAL, restrictions=(_ADMIN,))) as admins:
        await admins.post(f"{_MODEL}/load", json=_FILE, headers={"admin": "secret"})
    assert server.trusted


async def test_a_secure_server_takes_no_files_from_who_knows_the_secret(
    server: FakeServer,
) -> None:
    server.control_policy = ControlPolicy(by_secret=False)
    async with connected(server, replace(LOCAL, restrictions=(_ADMIN,))) as client:
        answer = await client.post(f"{_MODEL}/load", json=_FILE, headers={"admin": "secret"})
    assert (answer.status_code, server.loaded) == (501, [])
    assert "not where the server was started with --secure" in answer.json()["error"]


@pytest.mark.contract("H-15")
@pytest.mark.parametrize(
    ("body", "dependents"),
    [
        (b"", False),
        (b'{"parameters":{"unload_dependents":true}}', True),
        (b'{"parameters":{"unload_dependents":"x"}}', False),
        (b"{", False),
    ],
)
async def test_unload(
    client: httpx.AsyncClient, server: FakeServer, body: bytes, dependents: bool
) -> None:
    """A body that makes no sense changes nothing, as with the real server."""
    answer = await client.post(f"{_MODEL}/unload", content=body)
    assert (answer.status_code, answer.content) == (200, b"")
    assert server.unloaded == [("numbers", dependents)]


@pytest.mark.contract("H-16")
@pytest.mark.parametrize("path", ["index", "models/numbers/load", "models/numbers/unload"])
async def test_named_repositories_are_refused(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.post(f"/v2/repository/mine/{path}")
    assert answer.status_code == 501
    assert answer.json() == {"error": "'repository_name' specification is not supported"}
