"""Models that come and go with their files."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from fakes import FakeBuilder, in_virtual_time, until, write_model
from penstock.core.errors import InternalError
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.server.answers import ServerMetadata
from penstock.server.poller import Difference, RepositoryPoller, difference
from penstock.server.server import InferenceServer

pytestmark = pytest.mark.contract("M-03")


class House:
    """A server that follows a repository with the model `m`."""

    def __init__(self, *paths: Path) -> None:
        self.builder = FakeBuilder()
        repository = ModelRepository(paths)
        self.lifecycle = ModelLifecycle(repository, self.builder)
        self.server = InferenceServer(ServerMetadata("p", "1"), repository, self.lifecycle)
        self.poller = RepositoryPoller(repository, self.server)

    async def poll(self) -> list[str]:
        """Follow what has changed; the models that serve then, with their versions."""
        await self.poller.poll()
        await self.lifecycle.wait_unloaded()
        return [f"{model.config.name} {model.version}" for model in self.lifecycle.catalog.models()]


@pytest.fixture
def house(tmp_path: Path) -> House:
    write_model(tmp_path)
    return House(tmp_path)


def later(path: Path) -> None:
    """Change a file so that it is seen, however short the time."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))


def move(path: Path, to: Path) -> None:
    path.rename(to)


def test_only_what_differs_has_changed() -> None:
    one, other = frozenset({("f", 1, 1)}), frozenset({("f", 2, 1)})
    found = difference({"same": one, "new": one, "old": one}, {"same": one, "new": other, "x": one})
    assert found == Difference(frozenset({"new", "x"}), frozenset({"old"}))


async def test_new_models_are_loaded_and_removed_ones_unloaded(
    house: House, tmp_path: Path
) -> None:
    assert await house.poll() == ["m 1"]
    write_model(tmp_path, "other")
    assert await house.poll() == ["m 1", "other 1"]
    shutil.rmtree(tmp_path / "m")
    assert await house.poll() == ["other 1"]


async def test_new_version_takes_over(house: House, tmp_path: Path) -> None:
    await house.poll()
    write_model(tmp_path, versions=(2,))
    assert await house.poll() == ["m 2"]


@pytest.mark.contract("C-16")
async def test_a_changed_file_of_labels_loads_anew(house: House, tmp_path: Path) -> None:
    labels = tmp_path / "m" / "labels.txt"
    labels.write_text("one")
    await house.poll()
    later(labels)
    await house.poll()
    assert len(house.builder.instances) == 2


async def test_changed_file_loads_anew(house: House, tmp_path: Path) -> None:
    await house.poll()
    later(tmp_path / "m" / "config.pbtxt")
    await house.poll()
    assert len(house.builder.instances) == 2


async def test_what_has_not_changed_is_left_alone(house: House) -> None:
    await house.poll()
    await house.poll()
    assert len(house.builder.instances) == 1


async def test_what_served_goes_on_when_the_new_cannot_be_loaded(
    house: House, tmp_path: Path
) -> None:
    await house.poll()
    house.builder.failures[1] = InternalError("broken")
    later(tmp_path / "m" / "config.pbtxt")
    assert await house.poll() == ["m 1"]


async def test_repository_that_cannot_be_read_changes_nothing(
    house: House, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await house.poll()
    move(tmp_path, tmp_path.with_name("away"))
    assert await house.poll() == ["m 1"]
    assert "failed to poll the model repository" in caplog.text
    move(tmp_path.with_name("away"), tmp_path)
    assert await house.poll() == ["m 1"]


async def test_model_of_two_repositories_is_gone(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    write_model(tmp_path / "one")
    house = House(tmp_path / "one", tmp_path / "two")
    assert await house.poll() == ["m 1"]
    write_model(tmp_path / "two")
    assert await house.poll() == []


async def test_links_in_a_circle_end_nowhere(house: House, tmp_path: Path) -> None:
    (tmp_path / "m" / "1" / "up").symlink_to(tmp_path / "m")
    assert await house.poll() == ["m 1"]


@in_virtual_time
async def test_it_looks_every_so_often_until_it_is_closed(house: House, tmp_path: Path) -> None:
    async with house.poller.running(10):
        await asyncio.sleep(11)
        await until(lambda: bool(house.lifecycle.catalog.served("m")))
    write_model(tmp_path, "other")
    await asyncio.sleep(100)
    assert not house.lifecycle.catalog.served("other")


@in_virtual_time
async def test_without_a_time_it_never_looks(house: House) -> None:
    async with house.poller.running(0):
        await asyncio.sleep(100)
    assert not house.lifecycle.catalog.served("m")
