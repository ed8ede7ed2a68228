"""A model process that has died or is not healthy is started again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes import turns
from harness.no_descriptors import no_descriptors
from harness.serving import suspend
from hosting.parent.process.lives import children, kill, pid_of
from hosting.puppets import PATIENCE, Puppets, eventually, everything
from penstock.core.errors import UnavailableError
from penstock.hosting.parent.process import ProcessState


async def test_killed_process_is_started_again(puppets: Puppets) -> None:
    instance = await puppets.start()
    told = asyncio.Event()
    instance.on_available = told.set
    former = instance.pid
    kill(instance)
    await asyncio.wait_for(told.wait(), PATIENCE)
    assert instance.available
    assert await instance.healthy()
    assert await puppets.report(instance, "pid") == instance.pid != former


async def test_processes_after_the_first_are_counted(puppets: Puppets) -> None:
    instance = await puppets.start()
    assert instance.process == ProcessState(instance.pid, 0)
    kill(instance)
    await eventually(lambda: instance.process.restarts == 1)
    assert instance.process == ProcessState(instance.pid, 1)


@pytest.mark.slow
async def test_process_is_tried_as_often_as_there_is_no_descriptor_for_it(
    puppets: Puppets, caplog: pytest.LogCaptureFixture
) -> None:
    """Five failures in a minute keep a model down, if they are its own."""
    instance = await puppets.start()
    former = instance.pid
    with no_descriptors():
        kill(instance)
        await eventually(
            lambda: (
                caplog.text.count("could not be started again") >= 5 or "stays down" in caplog.text
            )
        )
    assert "stays down" not in caplog.text
    await eventually(lambda: instance.pid not in (None, former))
    assert await puppets.report(instance, "pid") == instance.pid


@pytest.mark.slow
async def test_backend_that_is_not_healthy_is_started_again(puppets: Puppets) -> None:
    instance = await puppets.start()
    former = instance.pid
    inference = puppets.begin(instance, "hang")
    await puppets.ask(instance, "sicken")
    with pytest.raises(UnavailableError, match="since its engine reports that it is not healthy"):
        await everything(inference)
    await eventually(lambda: instance.pid not in (None, former))


async def test_health_is_what_the_backend_says(puppets: Puppets) -> None:
    instance = await puppets.start()
    assert await instance.healthy()
    await puppets.ask(instance, "sicken")
    assert not await instance.healthy()


@pytest.mark.slow
async def test_broken_metrics_do_not_hide_bad_health(
    puppets: Puppets, caplog: pytest.LogCaptureFixture
) -> None:
    instance = await puppets.start()
    former = instance.pid
    await puppets.ask(instance, "break_metrics")
    await eventually(lambda: "reading the metrics of the backend failed" in caplog.text)
    await puppets.ask(instance, "sicken")
    await eventually(lambda: instance.pid not in (None, former))


async def test_probe_ends_when_the_process_does(puppets: Puppets) -> None:
    instance = await puppets.start()
    suspend(pid_of(instance))
    waiting = [asyncio.ensure_future(instance.healthy()) for _ in range(3)]
    await turns()
    kill(instance)
    await eventually(lambda: not instance.available)
    await turns()
    assert [probe.done() and probe.result() for probe in waiting] == [False, False, False]


@pytest.mark.slow
async def test_process_that_dies_again_and_again_stays_down(
    puppets: Puppets, caplog: pytest.LogCaptureFixture
) -> None:
    instance = await puppets.start()
    told = asyncio.Event()
    instance.on_lost = told.set
    for _ in range(5):
        await eventually(lambda: instance.available)
        assert not instance.lost
        kill(instance)
        await eventually(lambda: not instance.available)
    await asyncio.wait_for(told.wait(), PATIENCE)
    assert instance.lost
    with pytest.raises(UnavailableError, match=r"it failed 5 times in 60 s and stays down$"):
        await puppets.ask(instance, "echo")
    assert "instance 'puppet_0_0': its model process was killed" in caplog.text
    assert children() == []


@pytest.mark.slow
async def test_restart_that_fails_is_tried_again(puppets: Puppets, tmp_path: Path) -> None:
    """The second start finds no interpreter, a later one does."""
    python, away = tmp_path / "python", tmp_path / "away"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    instance = await puppets.start(python=str(python))
    python.rename(away)
    kill(instance)
    await eventually(lambda: "could not be started again" in instance.why_unavailable)
    away.rename(python)
    await eventually(lambda: instance.available)


class Recorded:
    """Services that record what model processes ask for."""

    propagates = False

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[object]]] = []

    async def control(self, verb: str, arguments: Sequence[Any]) -> None:
        self.asked.append((verb, list(arguments)))

    def ended(self, owner: str) -> None:
        pass


async def test_backend_may_have_its_model_unloaded_rather_than_restarted(puppets: Puppets) -> None:
    services: Any = Recorded()
    instance = await puppets.start(services=services, unhealthy="unload")
    former = instance.pid
    await puppets.ask(instance, "sicken")
    await eventually(lambda: bool(services.asked))
    assert services.asked == [("retire", ["puppet"])]
    assert not await instance.healthy()
    assert (await puppets.ask(instance, "echo")).error is None  # it answers as it likes meanwhile
    assert instance.pid == former
