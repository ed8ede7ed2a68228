"""The temporary folder of one model process goes with it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from hosting.parent.process.lives import kill
from hosting.puppets import Puppets, eventually
from penstock.system.private_tmp import private_tmp
from penstock.system.reaper import Reaper


@pytest_asyncio.fixture
async def reaper() -> AsyncIterator[Reaper]:
    reaper = Reaper()
    yield reaper
    reaper.close()


@pytest.mark.slow
async def test_process_that_stops_takes_its_folder_along(puppets: Puppets) -> None:
    instance = await puppets.start(private_tmp=True)
    folder = Path(await puppets.report(instance, "tmp"))
    assert folder.parent == puppets.reaper.folder()
    (folder / "left").write_text("behind")
    await instance.stop()
    await eventually(lambda: not folder.exists())


@pytest.mark.slow
async def test_process_that_dies_takes_its_folder_along(puppets: Puppets) -> None:
    instance = await puppets.start(private_tmp=True)
    folder = Path(await puppets.report(instance, "tmp"))
    kill(instance)
    await eventually(lambda: not instance.available)
    await eventually(lambda: instance.available)
    await eventually(lambda: not folder.exists())
    assert Path(await puppets.report(instance, "tmp")).parent == folder.parent


async def test_process_that_cannot_be_started_leaves_no_folder(puppets: Puppets) -> None:
    with pytest.raises(FileNotFoundError):
        await puppets.start(private_tmp=True, python="/nowhere/python")
    assert list(puppets.reaper.folder().iterdir()) == []


@pytest.mark.slow
async def test_process_has_the_folder_of_all_unless_it_asks_for_one(puppets: Puppets) -> None:
    instance = await puppets.start()
    assert await puppets.report(instance, "tmp") == tempfile.gettempdir()


async def test_folder_has_room_for_the_name_of_a_socket(reaper: Reaper) -> None:
    folder = private_tmp(reaper)
    assert folder is not None
    assert len(os.fsencode(folder)) + len("/5b940d94-5f0c-4386-9758-2822904518e7") <= 107


async def test_there_is_no_folder_where_a_socket_would_have_no_room(
    reaper: Reaper,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    deep = tmp_path / ("deep" * 16)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert private_tmp(reaper) is None
    assert "name a shorter one by TMPDIR" in caplog.text
    assert list(reaper.folder().iterdir()) == []


async def test_there_is_no_folder_where_nothing_can_be_written(
    reaper: Reaper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert private_tmp(reaper) is None
    assert "has no temporary folder of its own: [Errno 2]" in caplog.text
