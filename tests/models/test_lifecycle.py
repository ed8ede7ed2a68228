"""States of model versions, and how loads and unloads move them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import product
from pathlib import Path

import pytest

from fakes import FakeLoader, make_request, marks, turns, until, write_model
from penstock.core.errors import (
    ConfigError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from penstock.core.request import ANY_VERSION
from penstock.models.lifecycle import ModelLifecycle
from penstock.models.override import ModelOverride
from penstock.models.repository import ModelRepository
from penstock.models.states import State, VersionStatus

ALL = "version_policy { all { } }"

MOVES = {
    ("UNKNOWN", "LOADING"),
    ("LOADING", "READY"),
    ("LOADING", "UNAVAILABLE"),
    ("READY", "READY"),
    ("READY", "UNLOADING"),
    ("UNLOADING", "UNAVAILABLE"),
    ("UNAVAILABLE", "LOADING"),
}


class House:
    """A lifecycle over a repository on disk, with a loader that does as it is told."""

    def __init__(self, path: Path, **options: int) -> None:
        self.path = path
        self.loader = FakeLoader()
        repository = ModelRepository([path])
        self.lifecycle = ModelLifecycle(repository, self.loader, **options)

    @property
    def states(self) -> dict[int, str]:
        """Every version and its state, with the reason where there is one."""
        return {
            version: f"{status.state}: {status.reason}" if status.reason else status.state.value
            for _, version, status in self.lifecycle.statuses()
        }

    async def unload(self, name: str = "m") -> None:
        """Unload, and wait until that is done."""
        await self.lifecycle.unload(name)
        await self.lifecycle.settled()

    async def ask(self, name: str = "m", version: int = ANY_VERSION) -> tuple[str, list[str]]:
        """Which version answers, and what."""
        stream = self.lifecycle.find(name, version).infer(make_request("a"))
        return stream.model_version, await marks(stream)

    def refusal(self, name: str = "m", version: int = ANY_VERSION) -> InferenceError:
        with pytest.raises(InferenceError) as refused:
            self.lifecycle.find(name, version)
        return refused.value

    async def hold_a_request(self, name: str = "m") -> asyncio.Task[list[str]]:
        """A request in flight at the only instance there is so far."""
        task = asyncio.ensure_future(
            marks(self.lifecycle.find(name, ANY_VERSION).infer(make_request("held")))
        )
        await turns()
        return task


@pytest.fixture
async def house(tmp_path: Path) -> House:
    """With the model `m` on disk, version 1."""
    write_model(tmp_path)
    return House(tmp_path)


# -- the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "end"), list(product(State, State)))
def test_a_version_moves_only_as_the_table_says(start: State, end: State) -> None:
    status = VersionStatus(start)
    if (start.value, end.value) in MOVES:
        status.move(end, "why")
        assert (status.state, status.reason) == (end, "why")
    else:
        with pytest.raises(AssertionError, match=f"cannot go from {start} to {end}"):
            status.move(end)


async def test_a_move_leaves_reason_and_model_of_the_former_state_behind(house: House) -> None:
    await house.lifecycle.load("m")
    status = VersionStatus(State.READY, "odd", house.lifecycle.find("m", 1))
    status.move(State.UNLOADING)
    assert (status.reason, status.model) == ("", None)


# -- finding -------------------------------------------------------------------------------------


async def test_a_loaded_model_serves(house: House) -> None:
    await house.lifecycle.load("m")
    assert await house.ask() == ("1", ["a"])
    assert house.states == {1: "READY"}


@pytest.mark.contract("R-06", "R-07")
async def test_the_highest_ready_version_answers_unless_one_is_named(house: House) -> None:
    write_model(house.path, versions=(2, 10), config=ALL)
    await house.lifecycle.load("m")
    assert (await house.ask())[0] == "10"
    assert (await house.ask(version=2))[0] == "2"


@pytest.mark.parametrize(
    ("name", "version", "error", "text"),
    [
        ("nope", ANY_VERSION, NotFoundError, "'nope' is not found"),
        ("nope", 1, NotFoundError, "'nope' is not found"),
        ("", ANY_VERSION, NotFoundError, "'' is not found"),
        ("m", 7, NotFoundError, "'m' version 7 is not found"),
        ("m", 1, UnavailableError, "'m' version 1 is not at ready state"),
        ("m", ANY_VERSION, NotFoundError, "'m' has no available versions"),
    ],
)
async def test_what_does_not_serve_is_refused_in_the_words_of_the_real_server(
    house: House, name: str, version: int, error: type[InferenceError], text: str
) -> None:
    await house.lifecycle.load("m")
    await house.lifecycle.unload("m")
    refused = house.refusal(name, version)
    assert (type(refused), refused.message) == (error, f"Request for unknown model: {text}")


async def test_served_versions_are_listed_by_number_and_models_by_name(house: House) -> None:
    write_model(house.path, "m", (10, 2), ALL)
    write_model(house.path, "a")
    await asyncio.gather(*(house.lifecycle.load(name) for name in ("m", "a")))
    assert list(house.lifecycle.served("m")) == [1, 2, 10]
    models = [(model.config.name, model.version) for model in house.lifecycle.models()]
    assert models == [("a", 1), ("m", 1), ("m", 2), ("m", 10)]
    assert house.lifecycle.served("nope") == {}


# -- loading -------------------------------------------------------------------------------------


async def test_a_model_that_loads_is_loading_and_does_not_serve(house: House) -> None:
    house.loader.gate.clear()
    load = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: house.loader.loading)
    assert house.states == {1: "LOADING"}
    assert house.refusal().message.endswith("'m' has no available versions")
    house.loader.gate.set()
    await load


async def test_a_model_that_is_not_in_the_repository_stays_unknown(house: House) -> None:
    with pytest.raises(InternalError, match="failed to load 'nope', failed to poll"):
        await house.lifecycle.load("nope")
    assert not house.lifecycle.known("nope")


@pytest.mark.contract("X-16", "X-19")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (InvalidRequestError("no such file"), "Invalid argument: no such file"),
        (RuntimeError("out of memory"), "Internal: RuntimeError: out of memory"),
        (UnsupportedError("sequences"), "Unsupported: sequences"),
        (NotFoundError("weights"), "Not found: weights"),
    ],
)
async def test_a_version_that_fails_to_load_is_unavailable_and_says_why(
    house: House, error: Exception, reason: str
) -> None:
    house.loader.failures[1] = error
    with pytest.raises(InvalidRequestError) as failed:
        await house.lifecycle.load("m")
    assert failed.value.message == (
        f"load failed for model 'm': version 1 is at UNAVAILABLE state: {reason};\n"
    )
    assert house.states == {1: f"UNAVAILABLE: {reason}"}


@pytest.mark.contract("X-19")
async def test_a_load_names_every_version_that_failed(house: House) -> None:
    write_model(house.path, versions=(2, 3), config=ALL)
    house.loader.failures = {1: RuntimeError("x"), 3: InvalidRequestError("y")}
    with pytest.raises(InvalidRequestError) as failed:
        await house.lifecycle.load("m")
    assert failed.value.message == (
        "load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: RuntimeError: x;"
        "version 3 is at UNAVAILABLE state: Invalid argument: y;\n"
    )


@pytest.mark.contract("M-14")
async def test_a_policy_that_selects_no_version_fails_the_load(house: House) -> None:
    write_model(house.path, config="version_policy { specific { versions: [7] } }")
    with pytest.raises(InvalidRequestError) as failed:
        await house.lifecycle.load("m")
    assert failed.value.message == (
        "load failed for model 'm': at least one version must be available"
        " under the version policy of model 'm'\n"
    )
    assert house.refusal().message.endswith("'m' has no available versions")


async def test_a_failed_load_may_be_tried_again(house: House) -> None:
    house.loader.failures[1] = RuntimeError("once")
    with pytest.raises(InvalidRequestError):
        await house.lifecycle.load("m")
    del house.loader.failures[1]
    await house.lifecycle.load("m")
    assert house.states == {1: "READY"}


@pytest.mark.contract("M-11")
async def test_only_so_many_versions_are_loaded_at_the_same_time(tmp_path: Path) -> None:
    write_model(tmp_path, versions=range(1, 8), config=ALL)
    house = House(tmp_path, load_threads=3)
    house.loader.gate.clear()
    load = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: house.loader.loading)
    await turns(20)
    house.loader.gate.set()
    await load
    assert (house.loader.most_loading, len(house.states)) == (3, 7)


async def test_a_load_goes_on_when_its_caller_leaves(house: House) -> None:
    house.loader.gate.clear()
    load = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: house.loader.loading)
    load.cancel()
    await asyncio.wait([load])
    house.loader.gate.set()
    await turns(20)
    assert await house.ask() == ("1", ["a"])


# -- loading anew --------------------------------------------------------------------------------


@pytest.mark.contract("M-05")
async def test_the_old_one_serves_until_the_new_one_does(house: House) -> None:
    await house.lifecycle.load("m")
    old = house.lifecycle.find("m", 1)
    house.loader.gate.clear()
    reload = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: house.loader.loading)
    assert house.lifecycle.find("m", 1) is old
    assert await house.ask() == ("1", ["a"])
    assert house.states == {1: "READY"}
    house.loader.gate.set()
    await reload
    assert house.lifecycle.find("m", 1) is not old


@pytest.mark.contract("M-05")
async def test_requests_in_flight_finish_on_the_old_one(house: House) -> None:
    house.loader.held = True
    await house.lifecycle.load("m")
    held = await house.hold_a_request()
    house.loader.held = False
    await house.lifecycle.load("m")
    old, new = house.loader.instances
    assert await house.ask() == ("1", ["a"])
    assert (old.batches, new.batches, old.stopped) == ([["held"]], [["a"]], 0)
    old.release()
    assert await held == ["held"]
    await house.lifecycle.settled()
    assert (old.stopped, new.stopped) == (1, 0)


@pytest.mark.contract("M-05")
async def test_no_request_is_lost_while_a_model_is_loaded_anew(house: House) -> None:
    await house.lifecycle.load("m")
    loads = asyncio.ensure_future(_load_often(house, 5))
    answers = []
    while not loads.done():
        answers.append(await house.ask())
    await loads
    assert set(map(repr, answers)) == {"('1', ['a'])"}
    await house.lifecycle.settled()
    assert [instance.stopped for instance in house.loader.instances] == [1] * 5 + [0]


async def _load_often(house: House, count: int) -> None:
    for _ in range(count):
        await house.lifecycle.load("m")


@pytest.mark.contract("M-05")
async def test_a_failed_reload_keeps_the_old_one_serving(house: House) -> None:
    await house.lifecycle.load("m")
    house.loader.failures[1] = RuntimeError("bad weights")
    with pytest.raises(InvalidRequestError, match="bad weights"):
        await house.lifecycle.load("m")
    assert await house.ask() == ("1", ["a"])
    assert house.states == {1: "READY"}
    assert house.loader.instances[0].stopped == 0


async def test_files_that_cannot_be_read_any_more_keep_the_old_one_serving(house: House) -> None:
    await house.lifecycle.load("m")
    (house.path / "m" / "config.pbtxt").write_text("no such field")
    with pytest.raises(InternalError, match="failed to poll"):
        await house.lifecycle.load("m")
    assert await house.ask() == ("1", ["a"])


async def test_when_one_version_fails_no_other_is_replaced(house: House) -> None:
    write_model(house.path, versions=(2,), config=ALL)
    await house.lifecycle.load("m")
    served = house.lifecycle.served("m")
    house.loader.failures[2] = RuntimeError("bad weights")
    with pytest.raises(InvalidRequestError):
        await house.lifecycle.load("m")
    await house.lifecycle.settled()
    assert house.lifecycle.served("m") == served
    assert [instance.stopped for instance in house.loader.instances] == [0, 0, 1]


async def test_when_one_version_fails_no_other_becomes_ready(house: House) -> None:
    write_model(house.path, versions=(2,), config=ALL)
    house.loader.failures[2] = RuntimeError("bad weights")
    with pytest.raises(InvalidRequestError):
        await house.lifecycle.load("m")
    await house.lifecycle.settled()
    assert house.states == {
        1: "UNAVAILABLE: unloaded",
        2: "UNAVAILABLE: Internal: RuntimeError: bad weights",
    }
    assert house.loader.instances[0].stopped == 1


async def test_a_model_that_cannot_be_finalized_is_gone_all_the_same(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    await house.lifecycle.load("m")
    house.loader.instances[0].stop_error = OSError("device lost")
    with caplog.at_level(logging.ERROR):
        await house.unload()
    assert caplog.messages == ["finalizing 'm' failed"]
    assert house.states == {1: "UNAVAILABLE: unloaded"}


# -- version policies ----------------------------------------------------------------------------


@pytest.mark.contract("M-16")
async def test_versions_that_the_policy_no_longer_selects_are_unloaded(house: House) -> None:
    write_model(house.path, versions=(2,), config=ALL)
    await house.lifecycle.load("m")
    write_model(house.path, config="version_policy { specific { versions: [1] } }")
    await house.lifecycle.load("m")
    await house.lifecycle.settled()
    assert house.states == {1: "READY", 2: "UNAVAILABLE: unloaded"}
    assert (await house.ask())[0] == "1"


@pytest.mark.contract("R-05")
async def test_a_new_latest_version_takes_over(house: House) -> None:
    await house.lifecycle.load("m")
    write_model(house.path, versions=(2,))
    await house.lifecycle.load("m")
    await house.lifecycle.settled()
    assert house.states == {1: "UNAVAILABLE: unloaded", 2: "READY"}


async def test_a_new_version_that_fails_leaves_the_former_serving(house: House) -> None:
    await house.lifecycle.load("m")
    write_model(house.path, versions=(2,))
    house.loader.failures[2] = RuntimeError("bad weights")
    with pytest.raises(InvalidRequestError):
        await house.lifecycle.load("m")
    assert (await house.ask())[0] == "1"


async def test_a_version_may_come_back(house: House) -> None:
    await house.lifecycle.load("m")
    await house.lifecycle.unload("m")
    await house.lifecycle.load("m")
    assert house.states == {1: "READY"}


# -- unloading -----------------------------------------------------------------------------------


@pytest.mark.contract("G-13", "M-07")
async def test_unloading_refuses_at_once_and_returns_before_what_is_in_flight_is_done(
    house: House,
) -> None:
    house.loader.held = True
    await house.lifecycle.load("m")
    held = await house.hold_a_request()
    await asyncio.wait_for(house.lifecycle.unload("m"), 1)
    assert house.states == {1: "UNLOADING"}
    assert not house.lifecycle.complete()  # until it is gone (W-03)
    assert house.refusal().message.endswith("'m' has no available versions")
    house.loader.instances[0].release()
    assert await held == ["held"]
    await asyncio.wait_for(house.lifecycle.settled(), 1)
    assert house.states == {1: "UNAVAILABLE: unloaded"}
    assert house.loader.instances[0].stopped == 1


@pytest.mark.parametrize("name", ["nope", "m"])
async def test_unloading_what_does_not_serve_does_nothing(house: House, name: str) -> None:
    await house.lifecycle.load("m")
    await house.unload()
    await asyncio.wait_for(house.unload(name), 1)
    assert house.states == {1: "UNAVAILABLE: unloaded"}


async def test_unloading_a_second_time_does_nothing_more(house: House) -> None:
    house.loader.held = True
    await house.lifecycle.load("m")
    await house.hold_a_request()
    for _ in range(2):
        await asyncio.wait_for(house.lifecycle.unload("m"), 1)
    house.loader.instances[0].release()
    await asyncio.wait_for(house.lifecycle.settled(), 1)
    assert house.loader.instances[0].stopped == 1


async def test_unloading_does_not_wait_for_other_models(house: House) -> None:
    write_model(house.path, "slow")
    house.loader.held = True
    await asyncio.gather(house.lifecycle.load("m"), house.lifecycle.load("slow"))
    await house.hold_a_request("slow")
    await house.lifecycle.unload("slow")
    await house.lifecycle.unload("m")
    await until(lambda: _stopped(house) == ["m_1"])
    for instance in house.loader.instances:
        instance.release()
    await house.lifecycle.settled()
    assert _stopped(house) == ["m_1", "slow_1"]


def _stopped(house: House) -> list[str]:
    return sorted(instance.name for instance in house.loader.instances if instance.stopped)


# -- one model, many callers ---------------------------------------------------------------------


@pytest.mark.contract("M-05")
async def test_loads_of_one_model_are_served_one_after_the_other(house: House) -> None:
    await asyncio.gather(*(house.lifecycle.load("m") for _ in range(4)))
    await house.lifecycle.settled()
    assert house.loader.most_loading == 1
    assert [instance.stopped for instance in house.loader.instances] == [1, 1, 1, 0]


async def test_loads_of_different_models_go_side_by_side(house: House) -> None:
    write_model(house.path, "other")
    house.loader.gate.clear()
    loads = [asyncio.ensure_future(house.lifecycle.load(name)) for name in ("m", "other")]
    await until(lambda: house.loader.loading == 2)
    house.loader.gate.set()
    await asyncio.gather(*loads)


async def test_an_unload_waits_for_the_load_before_it(house: House) -> None:
    house.loader.gate.clear()
    load = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: house.loader.loading)
    unload = asyncio.ensure_future(house.lifecycle.unload("m"))
    await turns()
    assert not unload.done()
    house.loader.gate.set()
    await asyncio.gather(load, unload)
    await house.lifecycle.settled()
    assert house.states == {1: "UNAVAILABLE: unloaded"}


async def test_a_load_waits_for_the_version_that_is_being_unloaded(house: House) -> None:
    house.loader.held = True
    await house.lifecycle.load("m")
    await house.hold_a_request()
    await house.lifecycle.unload("m")
    load = asyncio.ensure_future(house.lifecycle.load("m"))
    await asyncio.sleep(0.05)
    assert (len(house.loader.instances), load.done()) == (1, False)
    house.loader.instances[0].release()
    await load
    assert house.states == {1: "READY"}


async def test_any_mixture_of_loads_and_unloads_ends_with_one_model_at_most(house: House) -> None:
    load: Callable[[str], Awaitable[None]] = house.lifecycle.load
    unload: Callable[[str], Awaitable[None]] = house.lifecycle.unload
    verbs = [load, unload] * 5 + [load]
    await asyncio.gather(*(verb("m") for verb in verbs))
    await house.lifecycle.settled()
    running = [instance for instance in house.loader.instances if not instance.stopped]
    assert len(running) == len(house.lifecycle.served("m"))
    assert all(instance.stopped <= 1 for instance in house.loader.instances)


@pytest.mark.contract("M-12")
@pytest.mark.parametrize(
    ("failure", "tries"), [(InternalError("no device"), 3), (ConfigError("never"), 1)]
)
async def test_a_load_that_fails_is_tried_again_unless_the_configuration_is_wrong(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, failure: InferenceError, tries: int
) -> None:
    write_model(tmp_path)
    house = House(tmp_path, load_retries=2)
    house.loader.failures[1] = failure
    with pytest.raises(InvalidRequestError, match=failure.message):
        await house.lifecycle.load("m")
    assert caplog.text.count("is tried again") == tries - 1
    house.loader.failures.clear()
    await house.lifecycle.load("m")
    assert house.states == {1: "READY"}


# -- files and configurations that come with a load -----------------------------------------------


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files of load requests go."""
    folder = tmp_path.with_name(f"{tmp_path.name}-scratch")
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def left(folder: Path) -> list[Path]:
    """What lies in a folder."""
    return list(folder.iterdir())


def made(*versions: int) -> ModelOverride:
    """A model that is not in the repository."""
    return ModelOverride(
        '{"backend": "fake", "version_policy": {"all": {}}}',
        {f"file:{version}/model": b"x" for version in versions},
    )


@pytest.mark.contract("X-18")
async def test_files_of_a_load_live_as_long_as_the_model(house: House, scratch: Path) -> None:
    await house.lifecycle.load("made", made(1, 2))
    (folder,) = left(scratch)
    assert (await house.ask("made"))[0] == "2"
    await house.lifecycle.load("made", made(3))
    await house.lifecycle.settled()
    assert (await house.ask("made"))[0] == "3"
    assert folder not in left(scratch)
    await house.unload("made")
    assert left(scratch) == []


async def test_files_of_a_model_with_requests_in_flight_stay(house: House, scratch: Path) -> None:
    house.loader.held = True
    await house.lifecycle.load("made", made(1))
    held = await house.hold_a_request("made")
    await house.lifecycle.unload("made")
    await turns()
    assert len(left(scratch)) == 1
    house.loader.instances[0].release()
    assert await held == ["held"]
    await house.lifecycle.settled()
    assert left(scratch) == []


@pytest.mark.contract("M-05")
async def test_what_served_goes_on_when_a_reload_with_files_fails(
    house: House, scratch: Path
) -> None:
    await house.lifecycle.load("made", made(1))
    house.loader.failures[1] = InternalError("broken")
    with pytest.raises(InvalidRequestError, match="broken"):
        await house.lifecycle.load("made", made(1))
    assert await house.ask("made") == ("1", ["a"])
    await house.unload("made")
    assert left(scratch) == []


async def test_closing_leaves_no_files(house: House, scratch: Path) -> None:
    await house.lifecycle.load("made", made(1))
    await house.lifecycle.close()
    assert left(scratch) == []


@pytest.mark.contract("X-17")
async def test_a_configuration_counts_until_the_next_load(house: House) -> None:
    write_model(house.path, versions=(2, 3))
    await house.lifecycle.load(
        "m", ModelOverride('{"backend": "fake", "version_policy": {"specific": {"versions": [1]}}}')
    )
    assert list(house.lifecycle.served("m")) == [1]
    await house.lifecycle.load("m")
    assert list(house.lifecycle.served("m")) == [3]


# -- whether all is well -------------------------------------------------------------------------


async def test_nothing_asked_for_is_nothing_missing(house: House) -> None:
    assert house.lifecycle.complete()


@pytest.mark.parametrize("policy", ["", ALL])
async def test_all_is_well_when_every_version_serves(house: House, policy: str) -> None:
    write_model(house.path, versions=(1, 2), config=policy)
    await house.lifecycle.load("m")
    assert house.lifecycle.complete()


async def test_a_version_that_was_unloaded_is_not_missed(house: House) -> None:
    await house.lifecycle.load("m")
    await house.unload()
    assert house.lifecycle.complete()


async def test_a_version_that_failed_is_missed(house: House) -> None:
    house.loader.failures[1] = RuntimeError("broken")
    with pytest.raises(InvalidRequestError):
        await house.lifecycle.load("m")
    assert not house.lifecycle.complete()


async def test_a_model_without_any_version_is_missed(house: House) -> None:
    write_model(house.path, config="version_policy { specific { versions: [7] } }")
    with pytest.raises(InvalidRequestError):
        await house.lifecycle.load("m")
    assert not house.lifecycle.complete()


async def test_a_model_that_loads_is_missed_and_one_that_is_loaded_anew_is_not(
    house: House,
) -> None:
    complete = []
    for _ in range(2):
        house.loader.gate.clear()
        load = asyncio.ensure_future(house.lifecycle.load("m"))
        await until(lambda: house.loader.loading)
        complete.append(house.lifecycle.complete())
        house.loader.gate.set()
        await load
    assert complete == [False, True]


# -- the end -------------------------------------------------------------------------------------


async def test_closing_unloads_everything_after_what_is_in_flight(house: House) -> None:
    house.loader.held = True
    await house.lifecycle.load("m")
    held = await house.hold_a_request()
    closing = asyncio.ensure_future(house.lifecycle.close())
    await turns()
    assert not closing.done()
    house.loader.instances[0].release()
    await asyncio.wait_for(closing, 1)
    assert await held == ["held"]
    assert house.states == {1: "UNAVAILABLE: unloaded"}


async def test_closing_waits_for_what_is_being_unloaded(house: House) -> None:
    house.loader.held = True
    await house.lifecycle.load("m")
    held = await house.hold_a_request()
    await house.lifecycle.unload("m")
    assert house.lifecycle.busy() == 1
    closing = asyncio.ensure_future(house.lifecycle.close())
    await turns()
    assert not closing.done()
    house.loader.instances[0].release()
    await asyncio.wait_for(closing, 1)
    assert (await held, house.lifecycle.busy()) == (["held"], 0)


async def test_closing_gives_up_what_is_being_loaded(house: House) -> None:
    house.loader.gate.clear()
    load = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: house.loader.loading)
    await asyncio.wait_for(house.lifecycle.close(), 1)
    await asyncio.wait([load])
    assert (load.cancelled(), house.loader.given_up) == (True, 1)
    assert house.states == {1: "UNAVAILABLE: Cancelled: request was cancelled"}


async def test_closing_releases_the_versions_of_a_load_that_were_made_already(
    house: House,
) -> None:
    write_model(house.path, versions=(2,), config=ALL)
    house.loader.gates[2] = asyncio.Event()
    load = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: house.loader.instances)
    await asyncio.wait_for(house.lifecycle.close(), 1)
    await asyncio.wait([load])
    assert house.loader.instances[0].stopped == 1


async def test_closing_while_a_model_is_loaded_anew_unloads_the_old_one(house: House) -> None:
    await house.lifecycle.load("m")
    house.loader.gate.clear()
    reload = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: house.loader.loading)
    await asyncio.wait_for(house.lifecycle.close(), 1)
    await asyncio.wait([reload])
    assert house.states == {1: "UNAVAILABLE: unloaded"}
    assert house.loader.instances[0].stopped == 1


async def test_aborting_releases_what_serves_and_what_is_being_unloaded(house: House) -> None:
    write_model(house.path, "other")
    house.loader.held = True
    await asyncio.gather(house.lifecycle.load("m"), house.lifecycle.load("other"))
    await house.hold_a_request()
    await house.lifecycle.unload("m")
    await asyncio.wait_for(house.lifecycle.abort(), 1)
    assert [instance.stopped for instance in house.loader.instances] == [1, 1]
    for instance in house.loader.instances:
        instance.release()
    await turns()


async def test_aborting_after_closing_took_too_long_releases_everything(house: House) -> None:
    house.loader.held = True
    await house.lifecycle.load("m")
    await house.hold_a_request()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(house.lifecycle.close(), 0.01)
    await asyncio.wait_for(house.lifecycle.abort(), 1)
    (instance,) = house.loader.instances
    assert instance.stopped == 1
    instance.release()
    await turns()
