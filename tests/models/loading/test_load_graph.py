"""Ensembles and the models that they are made of, on their way in and out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes import FakeBuilder, make_request, turns, until
from penstock.core.errors import InferenceError, InternalError, InvalidRequestError
from penstock.core.request import ANY_VERSION, InferenceRequest, InferenceResponse
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository

_TENSORS = """max_batch_size: 8
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
output { name: "OUT" data_type: TYPE_INT32 dims: -1 }
"""


class House:
    """A lifecycle over a repository on disk, whose plain models answer with what they get."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.builder = FakeBuilder()
        self.lifecycle = ModelLifecycle(ModelRepository([path]), self.builder)

    def write(self, **models: str) -> None:
        """Models by name, and what they are made of one behind the other; nothing for plain ones.

        `name:3` names a version.
        """
        for name, parts in models.items():
            (self.path / name / "1").mkdir(parents=True, exist_ok=True)
            text = _ensemble(parts.split()) if parts else 'backend: "fake"'
            (self.path / name / "config.pbtxt").write_text(text)

    async def load(self, *names: str) -> None:
        for name in names:
            await self.lifecycle.load(name)

    async def failure(self, name: str) -> str:
        """Why a load fails, without what all texts have in common."""
        with pytest.raises(InvalidRequestError) as failed:
            await self.lifecycle.load(name)
        return failed.value.message.removeprefix(f"load failed for model '{name}': ").rstrip("\n")

    async def unload(self, name: str, *, unload_dependents: bool = False) -> None:
        await self.lifecycle.unload(name, unload_dependents=unload_dependents)
        await self.lifecycle.wait_unloaded()

    @property
    def states(self) -> Mapping[str, str]:
        """The states of version 1 of every model."""
        return {
            name: f"{status.state}: {status.reason}" if status.reason else status.state.value
            for name, _, status in self.lifecycle.catalog.statuses()
        }

    @property
    def serving(self) -> str:
        return " ".join(model.config.name for model in self.lifecycle.catalog.models())

    async def ask(self, name: str) -> InferenceResponse:
        stream = self.lifecycle.catalog.find(name, ANY_VERSION).infer(_request())
        return await anext(stream)


def _ensemble(parts: list[str]) -> str:
    steps = []
    for at, part in enumerate(parts):
        model, _, version = part.partition(":")
        source = "IN" if at == 0 else f"M{at}"
        target = "OUT" if at == len(parts) - 1 else f"M{at + 1}"
        steps.append(
            f'step {{ model_name: "{model}" model_version: {version or -1}'
            f' input_map {{ key: "IN" value: "{source}" }}'
            f' output_map {{ key: "OUT" value: "{target}" }} }}'
        )
    return f'platform: "ensemble" {_TENSORS} ensemble_scheduling {{ {" ".join(steps)} }}'


def _request() -> InferenceRequest:
    return make_request("a")


@pytest.fixture
async def house(tmp_path: Path) -> House:
    """With two plain models, an ensemble of them, and one of that ensemble and one of them."""
    house = House(tmp_path)
    house.write(a="", b="", pair="a b", more="pair a")
    return house


# -- in ------------------------------------------------------------------------------------------


@pytest.mark.contract("M-08")
async def test_an_ensemble_brings_what_it_needs(house: House) -> None:
    await house.load("more")
    assert house.serving == "a b more pair"


async def test_a_model_that_serves_is_not_loaded_again_for_an_ensemble(house: House) -> None:
    house.builder.remembers = True
    await house.load("a")
    served = house.lifecycle.catalog.find("a", 1)
    await house.load("pair")
    assert house.lifecycle.catalog.find("a", 1) is served


async def test_models_are_loaded_once_when_all_are_wanted(house: House) -> None:
    failures = await house.lifecycle.load_all(["more", "pair", "b", "a"])
    assert failures == {}
    assert sorted(instance.name for instance in house.builder.instances) == ["a_1", "b_1"]


async def test_an_ensemble_waits_for_its_own_parts_only(house: House) -> None:
    house.write(slow="", lone="a")
    gate = asyncio.Event()

    async def wait_for_gate() -> None:
        await gate.wait()

    house.builder.before["slow"] = wait_for_gate
    loading = asyncio.ensure_future(house.lifecycle.load_all(["slow", "lone", "a"]))
    await until(lambda: house.serving == "a lone")
    gate.set()
    assert await loading == {}


async def test_a_part_that_cannot_be_read_is_missed(house: House) -> None:
    (house.path / "b" / "config.pbtxt").write_text("no such field")
    text = "ensemble pair contains models that are not available or ambiguous: b"
    assert await house.failure("pair") == text
    assert house.serving == "a"
    assert "pair" not in house.lifecycle.catalog.names()


@pytest.mark.contract("M-08")
async def test_a_part_that_fails_to_load_is_reported(house: House) -> None:
    house.builder.broken["b"] = RuntimeError("no memory")
    assert await house.failure("pair") == (
        "ensemble 'pair' depends on 'b' which has no loaded version. Model 'b' loading failed with"
        " error: version 1 is at UNAVAILABLE state: Internal: RuntimeError: no memory;"
    )


async def test_a_nested_ensemble_that_is_not_valid_is_reported(house: House) -> None:
    house.write(pair="a nope")
    assert await house.failure("more") == (
        "ensemble 'more' depends on 'pair' which is not valid. Model 'pair' failed with error:"
        " ensemble pair contains models that are not available or ambiguous: nope"
    )


async def test_a_missing_version_is_reported(house: House) -> None:
    house.write(pair="a:7")
    assert await house.failure("pair") == (
        "ensemble 'pair' depends on 'a' whose required version 7 is not loaded."
    )


@pytest.mark.contract("M-09")
async def test_ensembles_of_each_other_are_refused(house: House) -> None:
    house.write(one="two", two="one")
    assert await house.failure("one") == (
        "circular dependency between ensembles: one -> ... -> two -> one"
    )


@pytest.mark.contract("E-04")
async def test_parts_that_do_not_fit_are_refused(house: House) -> None:
    config = house.path / "pair" / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 8", "max_batch_size: 9"))
    assert await house.failure("pair") == (
        "ensemble pair allows maximum batch size 9, but it contains model a which only allows"
        " maximum batch size to be 8"
    )


@pytest.mark.contract("E-04", "AC-04")
async def test_a_batch_size_that_auto_completion_chose_is_told_apart(house: House) -> None:
    house.builder.remembers = True
    config = house.path / "pair" / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 8", "max_batch_size: 9"))
    part = house.path / "a" / "config.pbtxt"
    part.write_text(part.read_text().replace("max_batch_size: 8", ""))
    told = await house.failure("pair")
    assert (
        "model a which only allows maximum batch size to be 8; its configuration gives no" in told
    )
    assert "--backend-config=default-max-batch-size=N" in told


async def test_a_requested_model_that_cannot_be_read_is_reported(house: House) -> None:
    with pytest.raises(InternalError, match="failed to load 'nope', failed to poll"):
        await house.lifecycle.load("nope")


async def test_an_ensemble_comes_when_what_it_missed_does(house: House) -> None:
    house.write(pair="a late")
    await house.failure("pair")
    house.write(late="")
    await house.load("late")
    assert house.serving == "a late pair"


async def test_answers_go_through_all_steps(house: House) -> None:
    await house.load("more")
    response = await house.ask("more")
    assert list(response.outputs) == ["OUT"]
    batches = {instance.name: instance.batches for instance in house.builder.instances}
    assert batches == {"a_1": [["a"], ["a"]], "b_1": [["a"]]}


# -- out -----------------------------------------------------------------------------------------


@pytest.mark.contract("M-08")
async def test_ensembles_go_with_what_they_need(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    await house.load("more")
    with caplog.at_level(logging.ERROR):
        await house.unload("b")
    assert house.serving == "a"
    assert set(house.states.values()) == {"READY", "UNAVAILABLE: unloaded"}
    missing = "Invalid argument: ensemble pair contains models that are not available or ambiguous"
    assert caplog.messages[0] == f"{missing}: b"


@pytest.mark.contract("M-08")
async def test_ensembles_come_back_with_what_they_need(house: House) -> None:
    await house.load("more")
    await house.unload("b")
    await house.load("b")
    assert house.serving == "a b more pair"


async def test_an_ensemble_that_was_unloaded_does_not_come_back_by_itself(house: House) -> None:
    await house.load("pair")
    await house.unload("pair")
    await house.unload("b")
    await house.load("b")
    assert house.serving == "a b"


@pytest.mark.contract("X-24")
async def test_parts_stay_unless_they_are_to_go_as_well(house: House) -> None:
    await house.load("more")
    await house.unload("more")
    assert house.serving == "a b pair"


@pytest.mark.contract("X-24")
async def test_parts_are_unloaded_too_unless_another_ensemble_needs_them(house: House) -> None:
    await house.load("a", "more")
    await house.unload("more", unload_dependents=True)
    assert house.serving == "a"


async def test_requests_in_an_ensemble_finish_when_one_of_its_parts_is_unloaded(
    house: House,
) -> None:
    house.builder.held = True
    await house.load("pair")
    answer = asyncio.ensure_future(house.ask("pair"))
    await turns()
    await house.lifecycle.unload("b")
    assert house.states["b"] == "UNLOADING"
    for instance in house.builder.instances:
        instance.release()
    await asyncio.wait_for(answer, 20)  # also the step that had not begun yet
    await asyncio.wait_for(house.lifecycle.wait_unloaded(), 20)
    assert house.states["b"] == "UNAVAILABLE: unloaded"


async def test_closing_finishes_requests_in_ensembles(house: House) -> None:
    house.builder.held = True
    await house.load("more")
    answer = asyncio.ensure_future(house.ask("more"))
    await turns()
    closing = asyncio.ensure_future(house.lifecycle.close())
    await turns()
    assert not closing.done()
    for instance in house.builder.instances:
        instance.release()
    await asyncio.wait_for(asyncio.gather(answer, closing), 20)
    assert [instance.stopped for instance in house.builder.instances] == [1, 1]


async def test_aborting_fails_requests_in_ensembles(house: House) -> None:
    house.builder.held = True
    await house.load("pair")
    answer = asyncio.ensure_future(house.ask("pair"))
    await turns()
    await asyncio.wait_for(house.lifecycle.abort(), 20)
    with pytest.raises(InferenceError, match=r"in ensemble 'pair', model '.*' is being unloaded"):
        await answer


# -- loading anew --------------------------------------------------------------------------------


@pytest.mark.contract("E-17")
async def test_an_ensemble_uses_a_part_that_is_loaded_anew(house: House) -> None:
    await house.load("pair")
    old = house.lifecycle.catalog.find("pair", 1)
    await house.load("b")
    await house.lifecycle.wait_unloaded()
    assert house.lifecycle.catalog.find("pair", 1) is not old
    await house.ask("pair")
    stopped = {id(i): i.stopped for i in house.builder.instances if i.name == "b_1"}
    assert sorted(stopped.values()) == [0, 1]


@pytest.mark.contract("E-17")
async def test_an_ensemble_that_does_not_fit_any_more_goes_and_those_above_it(house: House) -> None:
    await house.load("more")
    config = house.path / "pair" / "config.pbtxt"
    config.write_text(config.read_text().replace("TYPE_INT32", "TYPE_FP32"))
    await house.failure("pair")
    await house.lifecycle.wait_unloaded()
    assert house.serving == "a b"
    house.write(pair="a b")
    await house.load("pair")
    assert house.serving == "a b more pair"


async def test_a_part_whose_new_one_fails_goes_on_in_the_ensemble(house: House) -> None:
    await house.load("pair")
    house.builder.broken["b"] = RuntimeError("bad weights")
    await house.failure("b")
    await house.lifecycle.wait_unloaded()
    assert house.serving == "a b pair"
    await house.ask("pair")


async def test_requests_in_an_ensemble_finish_on_the_parts_they_began_with(house: House) -> None:
    house.builder.held = True
    await house.load("pair")
    old = {instance.name: instance for instance in house.builder.instances}
    answer = asyncio.ensure_future(house.ask("pair"))
    await turns()
    house.builder.held = False
    await house.load("b")
    assert old["b_1"].stopped == 0
    for instance in old.values():
        instance.release()
    await asyncio.wait_for(answer, 20)
    await asyncio.wait_for(house.lifecycle.wait_unloaded(), 20)
    assert (len(old["b_1"].batches), old["b_1"].stopped) == (1, 1)


async def test_no_request_is_lost_while_parts_are_loaded_anew(house: House) -> None:
    await house.load("more")
    loads = asyncio.ensure_future(house.load("a", "b", "a", "pair", "b"))
    count = 0
    while not loads.done():
        await house.ask("more")
        count += 1
        await asyncio.sleep(0.001)  # which lets the threads that load have their turns
    await loads
    await house.lifecycle.wait_unloaded()
    assert count
    running = [instance.name for instance in house.builder.instances if not instance.stopped]
    assert sorted(running) == ["a_1", "b_1"]


async def test_any_mixture_of_loads_and_unloads_leaves_no_part_behind(house: House) -> None:
    lifecycle = house.lifecycle
    work = [
        verb(name)
        for name in ("a", "more", "b", "pair", "more", "b")
        for verb in (lifecycle.load, lifecycle.unload, lifecycle.load)
    ]
    await asyncio.wait_for(asyncio.gather(*work, return_exceptions=True), 20)
    await lifecycle.wait_unloaded()
    running = [instance for instance in house.builder.instances if not instance.stopped]
    plain = [name for name in house.serving.split() if name in ("a", "b")]
    assert len(running) == len(plain)
    assert all(instance.stopped <= 1 for instance in house.builder.instances)


# -- how well it is --------------------------------------------------------------------------------


async def test_an_ensemble_is_ready_while_its_parts_are(house: House) -> None:
    await house.load("more")
    more = house.lifecycle.catalog.find("more", 1)
    assert await more.ready()
    house.builder.instances[0].health = False
    assert not await more.ready()


async def test_an_ensemble_of_a_part_that_is_down_for_good_is_lost(house: House) -> None:
    await house.load("more")
    more = house.lifecycle.catalog.find("more", 1)
    assert more.loss == ""
    house.builder.instances[0].give_up()
    assert "it is away" in more.loss
