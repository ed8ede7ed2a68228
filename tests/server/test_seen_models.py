"""The server as a caller sees it that may know of some models only: others are unknown ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from fakes import make_request, marks
from penstock.access.current import acting_as
from penstock.access.globs import Glob
from penstock.access.policy import Permit
from penstock.core.errors import (
    InferenceError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
    UnsupportedError,
)
from penstock.server.seen_models import SeenModels, seen
from penstock.server.server import InferenceServer
from server.house import House

DENIED = "the caller may not change models of this name"


@pytest.fixture
def only_m() -> Iterator[None]:
    """A caller that sees the model `m`, and not `two`."""
    with acting_as(Permit("a", (Glob("m"),))):
        yield


async def refused(call: Awaitable[object]) -> tuple[type[InferenceError], str]:
    with pytest.raises(InferenceError) as told:
        await call
    return type(told.value), told.value.message


async def shown(house: House) -> tuple[InferenceServer, SeenModels]:
    server = await house.started("m", "two")
    return server, SeenModels(server)


async def test_without_a_policy_the_server_is_seen_as_it_is(house: House) -> None:
    assert house.server.access is None
    assert seen(house.server) is house.server


async def test_lists_have_what_is_seen(house: House, only_m: None) -> None:
    server, seen = await shown(house)
    assert (server.model_names(), seen.model_names()) == (["m", "two"], ["m"])
    assert [(one.name, one.version) for one in await seen.index()] == [("m", "1")]
    assert [one.name for one in await seen.index(ready_only=True)] == ["m"]
    assert [one.name for one in await seen.statistics("", "")] == ["m"]
    assert [*await server.openai_descriptions()] == ["m", "two"]
    assert [*await seen.openai_descriptions()] == ["m"]


async def test_the_index_of_a_caller_can_be_limited_to_what_is_ready(
    house: House, only_m: None
) -> None:
    _, seen = await shown(house)
    await house.unload("m")
    assert len(await seen.index()) == 1
    assert await seen.index(ready_only=True) == ()


async def test_what_is_seen_is_answered(house: House, only_m: None) -> None:
    server, seen = await shown(house)
    assert seen.find("m", "1") is server.find("m", "1")
    assert len(await marks(seen.infer(make_request()))) == 1
    assert await seen.model_ready("m", "")
    assert (await seen.model_metadata("m", "")).name == "m"
    assert (await seen.model_config("m", "")).name == "m"
    assert [one.version for one in await seen.statistics("m", "1")] == ["1"]
    assert await seen.adapters("m") == await server.adapters("m")
    assert await seen.trace_settings("m") == await server.trace_settings("m")
    assert await seen.trace_settings() == await server.trace_settings()
    assert seen.resident("m") == server.resident("m")


@pytest.mark.parametrize("name", ["two", "nope"])
async def test_what_is_not_seen_is_answered_as_what_is_not_there(
    house: House, only_m: None, name: str
) -> None:
    _, seen = await shown(house)
    unknown = f"Request for unknown model: '{name}' is not found"
    calls: list[Callable[[], Any]] = [
        lambda: seen.find(name, ""),
        lambda: seen.infer(make_request()._replace(model_name=name)),
    ]
    for call in calls:
        with pytest.raises(NotFoundError) as told:
            call()
        assert told.value.message == unknown
    assert await refused(seen.model_metadata(name, "")) == (NotFoundError, unknown)
    assert await refused(seen.model_config(name, "")) == (NotFoundError, unknown)
    available = f"requested model '{name}' is not available"
    assert await refused(seen.statistics(name, "")) == (InvalidRequestError, available)
    traced = f"Request for unknown model : {name}"
    assert await refused(seen.trace_settings(name)) == (InvalidRequestError, traced)
    assert await seen.adapters(name) == []
    assert (await seen.model_ready(name, ""), await seen.speaks_openai(name)) == (False, False)
    assert seen.resident(name) is None


@pytest.mark.parametrize("name", ["two", "nope"])
async def test_versions_are_checked_before_names(house: House, only_m: None, name: str) -> None:
    _, seen = await shown(house)
    for call in (
        seen.model_ready(name, "x"),
        seen.statistics(name, "x"),
        seen.model_metadata(name, "x"),
    ):
        kind, text = await refused(call)
        assert kind is InvalidRequestError
        assert text.startswith("failed to get model version from specified version string 'x'")


async def test_only_what_is_seen_is_changed(house: House, only_m: None) -> None:
    server, seen = await shown(house)
    denied = (PermissionDeniedError, DENIED)
    for name in ("two", " two ", "nope"):
        assert await refused(seen.load(name, {})) == denied
        assert await refused(seen.unload(name)) == denied
    await seen.unload(" m ")
    await house.lifecycle.wait_unloaded()
    assert not await server.model_ready("m", "")
    await seen.load(" m ", {})
    assert await server.model_ready("m", "")
    assert await server.model_ready("two", "")


async def test_an_unload_of_one_version_leaves_the_others(house: House) -> None:
    server, seen = await shown(house)
    with acting_as(Permit("a", (Glob("*"),))):
        await seen.unload("two", versions={1})
    await house.lifecycle.wait_unloaded()
    ready = [await server.model_ready("two", version) for version in ("1", "3")]
    assert ready == [False, True]


async def test_commands_to_engines_are_for_what_is_seen(house: House, only_m: None) -> None:
    _, seen = await shown(house)
    closed = "engines are not controlled by requests; --allow-engine-control=true allows it"
    assert await refused(seen.control("two", "", "sleep", {})) == (UnsupportedError, closed)
    open_house = House(house.path, engine_control=True)
    _, seen = await shown(open_house)
    kind, text = await refused(seen.control("two", "", "sleep", {}))
    assert (kind, text) == (NotFoundError, "Request for unknown model: 'two' is not found")
    assert seen.check_engine_control("m", "").version == 1


async def test_before_the_start_nothing_is_known_of_any_model(house: House, only_m: None) -> None:
    seen = SeenModels(house.server)
    for name in ("m", "two"):
        with pytest.raises(UnavailableError, match=r"^Server not ready$"):
            seen.find(name, "")


async def test_aliases_that_are_not_seen_are_unknown(house: House, only_m: None) -> None:
    server, seen = await shown(house)
    server.releases.set("hidden", {"targets": [{"model": "m"}]})
    assert [one.name for one in server.releases.aliases()] == ["hidden"]
    assert seen.releases.listed() == []
    with pytest.raises(NotFoundError, match=r"^there is no alias 'hidden'$"):
        seen.releases.shown("hidden")
    changes: list[Callable[[], None]] = [
        lambda: seen.releases.set("hidden", {"targets": [{"model": "m"}]}),
        lambda: seen.releases.remove("hidden"),
        lambda: seen.releases.roll_back("hidden"),
        lambda: seen.releases.promote("hidden", {}),
    ]
    for change in changes:
        with pytest.raises(PermissionDeniedError, match=f"^{DENIED}$"):
            change()
    with acting_as(Permit("b", (Glob("hidden"),))):
        assert [one["name"] for one in seen.releases.listed()] == ["hidden"]
        assert seen.releases.shown("hidden")
        with pytest.raises(PermissionDeniedError):  # whose target it does not see
            seen.releases.set("hidden", {"targets": [{"model": "m"}]})
        seen.releases.remove("hidden")
    assert [*server.releases.aliases()] == []
