"""LoRA adapters are loaded before they are used, and leave when nobody uses them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from penstock_backends.vllm.adapters import Adapters


class FakeEngine:
    """Holds adapters by number; those in `broken` fail, and all wait for the `gate`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.held: dict[int, str] = {}
        self.most = 0
        self.broken: set[str] = set()
        self.dead = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def add_adapter(self, name: str, number: int, path: str) -> Any:
        self.calls.append(f"+{name}")
        await self.gate.wait()
        if self.dead:
            raise UnavailableError("dead")
        self.held[number] = name  # also where it then turns out to be broken
        self.most = max(self.most, len(self.held))
        if name in self.broken:
            raise InvalidRequestError("no such tensor")
        return name

    async def remove_adapter(self, number: int) -> None:
        self.calls.append(f"-{self.held.pop(number, '')}")
        await asyncio.sleep(0)


def make(engine: FakeEngine, *names: str, capacity: int = 2) -> Adapters:
    return Adapters(engine, {name: f"/adapters/{name}" for name in names}, capacity)


async def use(adapters: Adapters, name: str) -> None:
    """A request with the adapter, from its beginning to its end."""
    adapter = adapters.find(name)
    await adapters.acquire(adapter)
    adapters.release(adapter)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.contract("VL-13")
async def test_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        make(FakeEngine(), "doll", "sheep").find("bactrian")
    assert refused.value.message == (
        "LoRA bactrian is not supported, we currently support ['doll', 'sheep']"
    )


async def test_adapter_is_loaded_once_before_its_first_use() -> None:
    engine = FakeEngine()
    adapters = make(engine, "a", "b")
    await asyncio.gather(*(use(adapters, "a") for _ in range(5)))
    await use(adapters, "a")
    assert engine.calls == ["+a"]


async def test_broken_adapter_is_refused_by_name_and_forgotten_by_the_engine() -> None:
    engine = FakeEngine()
    engine.broken = {"a"}
    adapters = make(engine, "a", "b")
    results = await asyncio.gather(
        *(use(adapters, name) for name in ("a", "b", "a")), return_exceptions=True
    )
    texts = [str(result) for result in results if result is not None]
    assert texts == ["LoRA a cannot be loaded from '/adapters/a': no such tensor"] * 2
    assert list(engine.held.values()) == ["b"]


async def test_broken_adapter_is_not_tried_again_until_its_files_change(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.broken = {"a"}
    adapters = Adapters(engine, {"a": str(tmp_path)}, 1)
    for _ in range(3):
        with pytest.raises(InvalidRequestError, match="no such tensor"):
            await use(adapters, "a")
    assert engine.calls == ["+a", "-a"]
    (tmp_path / "adapter_config.json").write_text("{}")
    engine.broken = set()
    await use(adapters, "a")
    assert engine.calls == ["+a", "-a", "+a"]


async def test_death_of_the_engine_is_not_the_adapters_fault() -> None:
    engine = FakeEngine()
    engine.dead = True
    adapters = make(engine, "a")
    with pytest.raises(UnavailableError, match="dead"):
        await use(adapters, "a")
    engine.dead = False
    await use(adapters, "a")
    assert list(engine.held.values()) == ["a"]


async def test_least_recently_used_one_goes_where_no_place_is_free() -> None:
    engine = FakeEngine()
    adapters = make(engine, "a", "b", "c")
    for name in ("a", "b", "a", "c"):
        await use(adapters, name)
    assert engine.calls == ["+a", "+b", "-b", "+c"]
    assert engine.most == 2


async def test_one_in_use_never_goes() -> None:
    engine = FakeEngine()
    adapters = make(engine, "a", "b", capacity=1)
    first = adapters.find("a")
    await adapters.acquire(first)
    waiting = asyncio.ensure_future(use(adapters, "b"))
    await turns()
    assert engine.calls == ["+a"]
    adapters.release(first)
    await waiting
    assert engine.calls == ["+a", "-a", "+b"]


@pytest.mark.parametrize("capacity", [1, 2, 3])
async def test_the_engine_never_holds_more_than_it_keeps(capacity: int) -> None:
    engine = FakeEngine()
    adapters = make(engine, "a", "b", "c", "d", capacity=capacity)
    engine.broken = {"d"}

    async def request(number: int) -> None:
        adapter = adapters.find("abcd"[number % 4])
        await adapters.acquire(adapter)
        assert adapter.number in engine.held
        for _ in range(number % 7):
            await asyncio.sleep(0)
        assert adapter.number in engine.held
        adapters.release(adapter)

    results = await asyncio.gather(*map(request, range(200)), return_exceptions=True)
    assert {type(result) for result in results} == {type(None), InvalidRequestError}
    assert engine.most <= capacity


async def test_who_leaves_while_it_loads_harms_nobody_who_waits() -> None:
    engine = FakeEngine()
    engine.gate.clear()
    adapters = make(engine, "a")
    left, stays = (asyncio.ensure_future(use(adapters, "a")) for _ in range(2))
    await turns()
    left.cancel()
    await turns()
    engine.gate.set()
    await stays
    assert left.cancelled()
    assert engine.calls == ["+a"]
    assert adapters.listed()[0]["requests"] == 0


async def test_who_leaves_while_it_waits_for_a_place_is_forgotten() -> None:
    engine = FakeEngine()
    adapters = make(engine, "a", "b", capacity=1)
    first = adapters.find("a")
    await adapters.acquire(first)
    waiting = asyncio.ensure_future(use(adapters, "b"))
    await turns()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert [one["requests"] for one in adapters.listed()] == [1, 0]
    adapters.release(first)
    await use(adapters, "a")
    await use(adapters, "b")
    assert engine.most == 1


async def test_added_adapter_serves_at_once() -> None:
    engine = FakeEngine()
    adapters = make(engine)
    await adapters.add("new", "/somewhere")
    assert adapters.listed() == [
        {"name": "new", "path": "/somewhere", "loaded": True, "requests": 0}
    ]
    await use(adapters, "new")
    assert engine.calls == ["+new"]


async def test_broken_adapter_is_not_added() -> None:
    engine = FakeEngine()
    engine.broken = {"new"}
    adapters = make(engine)
    with pytest.raises(InvalidRequestError, match="LoRA new cannot be loaded from '/x': no such"):
        await adapters.add("new", "/x")
    assert (adapters.names, engine.held) == ([], {})
    engine.broken = set()
    await adapters.add("new", "/x")
    assert adapters.names == ["new"]


async def test_name_that_is_taken_is_refused() -> None:
    engine = FakeEngine()
    engine.gate.clear()
    adapters = make(engine, "a")
    adding = asyncio.ensure_future(adapters.add("new", "/x"))
    await turns()
    for name in ("a", "new"):
        with pytest.raises(AlreadyExistsError, match=f"LoRA {name} exists already"):
            await adapters.add(name, "/y")
    engine.gate.set()
    await adding
    assert adapters.names == ["a", "new"]


async def test_removal_waits_for_those_in_flight_and_refuses_others() -> None:
    engine = FakeEngine()
    adapters = make(engine, "a")
    adapter = adapters.find("a")
    await adapters.acquire(adapter)
    removal = asyncio.ensure_future(adapters.remove("a"))
    await turns()
    assert not removal.done()
    with pytest.raises(InvalidRequestError, match="LoRA a is not supported"):
        adapters.find("a")
    assert engine.held
    adapters.release(adapter)
    await removal
    assert not engine.held


async def test_removal_of_one_that_is_loading_waits_for_that() -> None:
    engine = FakeEngine()
    engine.gate.clear()
    adapters = make(engine, "a")
    request = asyncio.ensure_future(use(adapters, "a"))
    await turns()
    removal = asyncio.ensure_future(adapters.remove("a"))
    await turns()
    engine.gate.set()
    await asyncio.gather(request, removal)
    assert engine.calls == ["+a", "-a"]


async def test_unknown_name_cannot_be_removed() -> None:
    with pytest.raises(NotFoundError, match=r"LoRA \.\./x is not one of \['a'\]"):
        await make(FakeEngine(), "a").remove("../x")


async def test_next_adapter_of_a_name_is_another_one_for_the_engine() -> None:
    """Whose prefix cache would else answer with what the former one has made."""
    engine = FakeEngine()
    adapters = make(engine, "a")
    await use(adapters, "a")
    (former,) = engine.held
    await adapters.remove("a")
    await adapters.add("a", "/adapters/a")
    assert engine.held.keys() != {former}
    assert engine.calls == ["+a", "-a", "+a#2"]


async def test_close_ends_what_is_loading() -> None:
    engine = FakeEngine()
    engine.gate.clear()
    adapters = make(engine, "a")
    request = asyncio.ensure_future(use(adapters, "a"))
    await turns()
    await adapters.close()
    with pytest.raises(asyncio.CancelledError):
        await request
    await adapters.close()
