"""Changing the number of instances while a model serves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import FakeBackend, FakeInstance, InstallBackend, Script, make_request, marks, until
from penstock.core.backend import InstanceContext
from penstock.core.errors import InvalidRequestError, UnavailableError
from penstock.core.stream import ResponseStream
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.loading.resizing import matched
from penstock.models.repository.repository import ModelRepository
from penstock.models.serving.loaded_model import LoadedModel
from penstock.system.reaper import Reaper

pytestmark = pytest.mark.contract("M-06")

# -- which stay and which leave ------------------------------------------------------------------


def _instances(*kinds: tuple[str, str]) -> list[FakeInstance]:
    return [FakeInstance(name, signature=kind) for name, kind in kinds]


def test_instances_of_a_kind_that_is_wanted_stay_by_their_names() -> None:
    present = _instances(("m_0", "cpu"), ("m_1", "cpu"), ("m_2", "cpu"))
    kept, added, left = matched(_instances(("m_0", "cpu"), ("m_2", "cpu")), present)
    assert (kept, added, left) == ([present[0], present[2]], [], [present[1]])


def test_an_instance_of_another_kind_takes_the_place_of_one() -> None:
    present, wanted = _instances(("m_0", "cpu")), _instances(("m_0", "gpu"))
    assert matched(wanted, present) == ([], wanted, present)


_KINDS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["cpu", "gpu"])), max_size=6)


@given(_KINDS, _KINDS)
def test_no_more_is_started_and_stopped_than_needed(
    before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    present, wanted = _instances(*before), _instances(*after)
    kept, added, left = matched(wanted, present)
    assert Counter(i.signature for i in (*kept, *added)) == Counter(kind for _, kind in after)
    assert {*kept, *left} == set(present)
    assert not {i.signature for i in added} & {i.signature for i in left}


# -- while it serves -----------------------------------------------------------------------------

CONFIG = """
backend: "fake" max_batch_size: 8
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
output { name: "OUT" data_type: TYPE_INT32 dims: -1 }
"""


@dataclass
class House:
    """A lifecycle over one model on a scripted backend."""

    path: Path
    script: Script
    lifecycle: ModelLifecycle

    def write(self, groups: str, more: str = "") -> None:
        (self.path / "m" / "config.pbtxt").write_text(f"{CONFIG} {groups} {more}")

    async def load(self, groups: str, more: str = "") -> LoadedModel:
        self.write(groups, more)
        await self.lifecycle.load("m")
        return self.model

    @property
    def model(self) -> LoadedModel:
        return self.lifecycle.catalog.find("m", 1)

    def ask(self, id: str) -> ResponseStream:
        return self.model.infer(make_request(id))

    @property
    def started(self) -> list[str]:
        return [context.name for context in self.script.contexts]


@pytest.fixture
def house(tmp_path: Path, install_backend: InstallBackend) -> House:
    return _house(tmp_path, install_backend)


def _house(
    path: Path,
    install: InstallBackend,
    backend: type[FakeBackend] = FakeBackend,
    patience: float = 0.0,
) -> House:
    script = Script()
    install("fake", type("Scripted", (backend,), {"script": script}))
    (path / "models" / "m" / "1").mkdir(parents=True)
    repository = ModelRepository([path / "models"])
    builder = VersionBuilder(lambda _: {}, Reaper())
    lifecycle = ModelLifecycle(repository, builder, finalize_seconds=patience)
    return House(path / "models", script, lifecycle)


def groups(*counts: int) -> str:
    return " ".join(f"instance_group {{ count: {count} }}" for count in counts)


async def test_more_instances_join_those_that_work(house: House) -> None:
    model = await house.load(groups(1))
    house.script.gate.clear()
    first = house.ask("a")
    assert await house.load(groups(3)) is model
    assert house.started == ["m_0_0", "m_0_1", "m_0_2"]
    others = [house.ask(id) for id in "bc"]
    await until(lambda: len(house.script.batches) == 3)
    house.script.gate.set()
    assert [await marks(stream) for stream in (first, *others)] == [["a"], ["b"], ["c"]]
    assert model.config.instance_group[0].count == 3
    await house.lifecycle.close()
    assert house.script.finalized == 3


async def test_fewer_instances_finish_what_they_have(house: House) -> None:
    model = await house.load(groups(2))
    house.script.gate.clear()
    running = [house.ask(id) for id in "ab"]
    await until(lambda: len(house.script.batches) == 2)
    assert await house.load(groups(1)) is model
    waiting = house.ask("c")
    assert house.script.finalized == 0
    house.script.gate.set()
    assert [await marks(stream) for stream in (*running, waiting)] == [["a"], ["b"], ["c"]]
    await until(lambda: house.script.finalized == 1)
    assert house.started == ["m_0_0", "m_0_1"]
    await house.lifecycle.close()
    assert house.script.finalized == 2


@pytest.mark.contract("M-06")
async def test_a_load_returns_once_the_instances_that_go_are_finalized(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    house = _house(tmp_path, install_backend, patience=20)
    await house.load(groups(2))
    house.script.gate.clear()
    running = [house.ask(id) for id in "ab"]
    await until(lambda: len(house.script.batches) == 2)
    loading = asyncio.ensure_future(house.load(groups(1)))
    await until(lambda: house.model.config.instance_group[0].count == 1)
    assert not loading.done()
    house.script.gate.set()
    await loading
    assert house.script.finalized == 1
    assert [await marks(stream) for stream in running] == [["a"], ["b"]]
    await house.lifecycle.close()


async def test_requests_that_wait_go_to_the_instances_that_come(house: House) -> None:
    await house.load(groups(1))
    house.script.gate.clear()
    streams = [house.ask(id) for id in "ab"]
    await until(lambda: len(house.script.batches) == 1)
    await house.load(groups(2))
    await until(lambda: len(house.script.batches) == 2)
    house.script.gate.set()
    assert [await marks(stream) for stream in streams] == [["a"], ["b"]]
    await house.lifecycle.close()


async def test_counters_go_on(house: House) -> None:
    await house.load(groups(1))
    await marks(house.ask("a"))
    model = await house.load(groups(2))
    await marks(house.ask("b"))
    assert model.statistics.success.count == 2
    await house.lifecycle.close()


@pytest.mark.parametrize("more", ["dynamic_batching { }", "response_cache { enable: true }"])
async def test_it_works_behind_a_batcher_and_a_cache(house: House, more: str) -> None:
    model = await house.load(groups(1), more)
    assert await house.load(groups(2), more) is model
    assert await marks(house.ask("a")) == ["a"]
    await house.lifecycle.close()


async def test_an_instance_of_another_kind_takes_over(house: House) -> None:
    model = await house.load("instance_group { }")
    assert await house.load("instance_group { kind: KIND_MODEL }") is model
    assert await marks(house.ask("a")) == ["a"]
    assert house.script.executed == ["m_0_0"]
    assert house.script.contexts[-1].kind == "KIND_MODEL"
    await until(lambda: house.script.finalized == 1)
    await house.lifecycle.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda house: house.write(groups(2), "dynamic_batching { }"),
        lambda house: (house.path / "m" / "1" / "weights").write_bytes(b"new"),
    ],
)
async def test_anything_else_is_a_load_anew(
    house: House, change: Callable[[House], object]
) -> None:
    model = await house.load(groups(1))
    change(house)
    await house.lifecycle.load("m")
    assert house.model is not model
    await house.lifecycle.close()


# -- with sequences ------------------------------------------------------------------------------

SEQUENCES = """
sequence_batching { max_sequence_idle_microseconds: 60000000 control_input { name: "START" control {
    kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } } %s }
"""
STRATEGIES = pytest.mark.parametrize(
    "strategy", ["", "oldest { max_candidate_sequences: 1 }"], ids=["direct", "oldest"]
)


def step(house: House, sequence: int, id: str, **flags: bool) -> ResponseStream:
    """Ask something within a sequence; the flags are `start` and `end`."""
    named = {f"sequence_{name}": value for name, value in flags.items()}
    return house.model.infer(make_request(id, correlation_id=sequence, **named))


@pytest.mark.contract("S-23")
@STRATEGIES
async def test_an_instance_that_goes_ends_its_sequences_first(house: House, strategy: str) -> None:
    sequences, script = SEQUENCES % strategy, house.script
    model = await house.load(groups(2), sequences)
    assert [await marks(step(house, n, f"{n}", start=True)) for n in (1, 2)] == [["1"], ["2"]]
    assert script.executed == ["m_0_0", "m_0_1"]
    await house.load(groups(1), sequences)
    assert house.model is model
    assert await marks(step(house, 2, "2 goes on")) == ["2 goes on"]
    assert script.executed[-1] == "m_0_1"
    assert script.finalized == 0
    assert await marks(step(house, 2, "2 ends", end=True)) == ["2 ends"]
    await until(lambda: script.finalized == 1)
    third = step(house, 3, "3", start=True)
    assert await marks(step(house, 1, "1 ends", end=True)) == ["1 ends"]
    assert await marks(third) == ["3"]
    assert script.executed[-1] == "m_0_0"
    await house.lifecycle.close()
    assert script.finalized == 2


@pytest.mark.contract("S-23")
async def test_sequences_that_wait_begin_on_instances_that_come(house: House) -> None:
    sequences = SEQUENCES % "oldest { max_candidate_sequences: 1 }"
    await house.load(groups(1), sequences)
    await marks(step(house, 1, "1", start=True))
    second = step(house, 2, "2", start=True)
    await house.load(groups(2), sequences)
    assert await marks(second) == ["2"]
    assert house.script.executed == ["m_0_0", "m_0_1"]
    await house.lifecycle.close()


@pytest.mark.contract("S-23")
async def test_an_unload_waits_for_no_sequences_of_an_instance_that_goes(house: House) -> None:
    sequences = SEQUENCES % "oldest { max_candidate_sequences: 1 }"
    await house.load(groups(2), sequences)
    for number in (1, 2):
        await marks(step(house, number, "", start=True))
    await house.load(groups(1), sequences)
    await house.lifecycle.unload("m")
    await asyncio.wait_for(house.lifecycle.wait_unloaded(), 20)
    assert house.script.finalized == 2


@pytest.mark.parametrize("more", ["", "dynamic_batching { }", SEQUENCES % ""])
async def test_queued_requests_fail_once_all_instances_are_passive(house: House, more: str) -> None:
    await house.load(groups(1), more)
    house.script.gate.clear()
    running = step(house, 1, "a", start=True)
    await until(lambda: house.script.batches)
    waiting = step(house, 1, "b")
    await house.load("instance_group { passive: true }", more)
    with pytest.raises(UnavailableError, match="all instances of model 'm' are passive"):
        await marks(waiting)
    house.script.gate.set()
    assert await marks(running) == ["a"]
    await house.lifecycle.close()


async def test_instances_that_cannot_be_started_leave_everything_as_it_was(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    class Crowded(FakeBackend):
        async def initialize(self, context: InstanceContext) -> None:
            await super().initialize(context)
            if context.name == "m_0_2":
                raise InvalidRequestError("no room")

    house = _house(tmp_path, install_backend, Crowded)
    model = await house.load(groups(1))
    with pytest.raises(InvalidRequestError, match="no room"):
        await house.load(groups(3))
    assert house.model is model
    assert model.config.instance_group[0].count == 1
    assert await marks(house.ask("a")) == ["a"]
    assert house.script.finalized == 1  # that of the second instance, which had started
    await house.lifecycle.close()


async def test_a_load_that_is_given_up_leaves_everything_as_it_was(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    class Slow(FakeBackend):
        async def initialize(self, context: InstanceContext) -> None:
            await super().initialize(context)
            if context.name == "m_0_1":
                await asyncio.Event().wait()

    house = _house(tmp_path, install_backend, Slow)
    await house.load(groups(1))
    house.write(groups(2))
    loading = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: len(house.script.contexts) == 2)
    assert await marks(house.ask("a")) == ["a"]
    await house.lifecycle.close()
    await asyncio.wait([loading])
    assert house.script.finalized == 1
