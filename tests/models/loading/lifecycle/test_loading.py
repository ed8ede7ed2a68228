"""Loading: what fails, what serves meanwhile, and files that come with a load."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from fakes import turns, until, write_model
from models.loading.lifecycle.house import ALL, House
from penstock.core.errors import InternalError, InvalidRequestError, NotFoundError, UnsupportedError
from penstock.models.repository.override import ModelOverride

# -- loading --------------------------------------------------------------------------------------


async def test_a_model_that_loads_is_loading_and_does_not_serve(house: House) -> None:
    house.builder.gate.clear()
    load = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: house.builder.loading)
    assert house.states == {1: "LOADING"}
    assert house.refusal().message.endswith("'m' has no available versions")
    house.builder.gate.set()
    await load


async def test_a_model_that_is_not_in_the_repository_stays_unknown(house: House) -> None:
    with pytest.raises(InternalError, match="failed to load 'nope', failed to poll"):
        await house.lifecycle.load("nope")
    assert "nope" not in house.lifecycle.catalog.names()


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
    house.builder.failures[1] = error
    with pytest.raises(InvalidRequestError) as failed:
        await house.lifecycle.load("m")
    assert failed.value.message == (
        f"load failed for model 'm': version 1 is at UNAVAILABLE state: {reason};\n"
    )
    assert house.states == {1: f"UNAVAILABLE: {reason}"}


async def test_a_slip_of_a_backend_while_it_loads_is_logged_with_its_traceback(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    write_model(house.path, versions=(2,), config=ALL)
    slip = KeyError("slip")
    house.builder.failures = {1: slip, 2: InvalidRequestError("said so")}
    with pytest.raises(InvalidRequestError):
        await house.lifecycle.load("m")
    assert [one.exc_info[1] for one in caplog.records if one.exc_info] == [slip]


@pytest.mark.contract("X-19")
async def test_a_load_names_every_version_that_failed(house: House) -> None:
    write_model(house.path, versions=(2, 3), config=ALL)
    house.builder.failures = {1: RuntimeError("x"), 3: InvalidRequestError("y")}
    with pytest.raises(InvalidRequestError) as failed:
        await house.lifecycle.load("m")
    assert failed.value.message == (
        "load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: RuntimeError: x;"
        "version 3 is at UNAVAILABLE state: Invalid argument: y;\n"
    )


@pytest.mark.contract("M-14")
async def test_a_policy_that_selects_no_version_fails_the_load(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    write_model(house.path, config="version_policy { specific { versions: [7] } }")
    with pytest.raises(InvalidRequestError) as failed:
        await house.lifecycle.load("m")
    assert failed.value.message == (
        "load failed for model 'm': at least one version must be available"
        " under the version policy of model 'm'\n"
    )
    assert house.refusal().message.endswith("'m' has no available versions")
    problem = "at least one version must be available under the version policy of model 'm'"
    assert caplog.messages[-1] == f"failed to load model 'm': {problem}"


async def test_a_failed_load_may_be_tried_again(house: House) -> None:
    house.builder.failures[1] = RuntimeError("once")
    with pytest.raises(InvalidRequestError):
        await house.lifecycle.load("m")
    del house.builder.failures[1]
    await house.lifecycle.load("m")
    assert house.states == {1: "READY"}


@pytest.mark.contract("M-11", "W-11")
async def test_only_so_many_versions_are_loaded_at_the_same_time(tmp_path: Path) -> None:
    write_model(tmp_path, versions=range(1, 8), config=ALL)
    house = House(tmp_path, load_threads=3)
    house.builder.gate.clear()
    load = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: house.builder.loading)
    await turns(20)
    house.builder.gate.set()
    await load
    assert (house.builder.most_loading, len(house.states)) == (3, 7)


async def test_a_load_goes_on_when_its_caller_leaves(house: House) -> None:
    house.builder.gate.clear()
    load = asyncio.ensure_future(house.lifecycle.load("m"))
    await until(lambda: house.builder.loading)
    load.cancel()
    await asyncio.wait([load])
    house.builder.gate.set()
    await turns(20)
    assert await house.ask() == ("1", ["a"])


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
    await house.lifecycle.wait_unloaded()
    assert (await house.ask("made"))[0] == "3"
    assert folder not in left(scratch)
    await house.unload("made")
    assert left(scratch) == []


async def test_files_of_a_model_with_requests_in_flight_stay(house: House, scratch: Path) -> None:
    house.builder.held = True
    await house.lifecycle.load("made", made(1))
    held = await house.hold_a_request("made")
    await house.lifecycle.unload("made")
    await turns()
    assert len(left(scratch)) == 1
    house.builder.instances[0].release()
    assert await held == ["held"]
    await house.lifecycle.wait_unloaded()
    assert left(scratch) == []


@pytest.mark.contract("M-05")
async def test_what_served_goes_on_when_a_reload_with_files_fails(
    house: House, scratch: Path
) -> None:
    await house.lifecycle.load("made", made(1))
    house.builder.failures[1] = InternalError("broken")
    with pytest.raises(InvalidRequestError, match="broken"):
        await house.lifecycle.load("made", made(1))
    assert await house.ask("made") == ("1", ["a"])
    await house.unload("made")
    assert left(scratch) == []


async def test_closing_leaves_no_files(house: House, scratch: Path) -> None:
    await house.lifecycle.load("made", made(1))
    await house.lifecycle.close()
    assert left(scratch) == []


class _SlowFiles(dict[str, bytes]):
    """Files that are written when the test lets them."""

    def __init__(self) -> None:
        super().__init__({"file:1/model": b"x"})
        self.asked, self.gate = Event(), Event()

    def items(self) -> Any:
        self.asked.set()
        assert self.gate.wait(60)
        return super().items()


async def test_a_load_that_is_cancelled_while_its_files_are_written_leaves_none(
    house: House, scratch: Path
) -> None:
    """Neither those nor the files of a model that are there already."""
    files = _SlowFiles()
    overrides = {"slow": ModelOverride('{"backend": "fake"}', files), "made": made(1)}
    load = asyncio.ensure_future(house.lifecycle.load_all(overrides))
    await until(lambda: files.asked.is_set() and [*scratch.glob("*/1/model")])
    closing = asyncio.ensure_future(house.lifecycle.close())
    await turns()
    files.gate.set()
    await asyncio.wait([load, closing])
    assert load.cancelled()
    assert left(scratch) == []


@pytest.mark.contract("X-17")
async def test_a_configuration_counts_until_the_next_load(house: House) -> None:
    write_model(house.path, versions=(2, 3))
    await house.lifecycle.load(
        "m", ModelOverride('{"backend": "fake", "version_policy": {"specific": {"versions": [1]}}}')
    )
    assert list(house.lifecycle.catalog.served("m")) == [1]
    await house.lifecycle.load("m")
    assert list(house.lifecycle.catalog.served("m")) == [3]
