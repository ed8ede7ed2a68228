"""What becomes of requests when a model process dies."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from hosting.parent.process.lives import kill, pid_of
from hosting.puppets import Puppets, alive, eventually, everything, order
from penstock.core.errors import UnavailableError


async def _noted(mark: Path, count: int) -> None:
    """Until so many executions have begun that leave a note."""
    await eventually(lambda: mark.exists() and mark.read_text().count("\n") == count)


@pytest.mark.parametrize("do", ["hang", "drip", "flow"])
async def test_killed_process_fails_what_is_in_flight_with_the_reason(
    puppets: Puppets, do: str
) -> None:
    instance = await puppets.start()
    inference = puppets.begin(instance, do)
    await puppets.settle(instance)
    kill(instance)
    with pytest.raises(
        UnavailableError,
        match=r"^model 'puppet', instance 'puppet_0_0': its model process was killed by signal 9"
        r" \(SIGKILL\); it is being restarted$",
    ):
        await everything(inference)


async def test_death_by_a_signal_without_a_name_is_told_too(puppets: Puppets) -> None:
    instance = await puppets.start()
    inference = puppets.begin(instance, "hang")
    os.kill(pid_of(instance), signal.SIGRTMIN + 3)
    number = signal.SIGRTMIN + 3
    with pytest.raises(UnavailableError, match=f"was killed by signal {number}; it is being"):
        await everything(inference)


@pytest.mark.parametrize("status", [0, 3])
async def test_exit_fails_what_is_in_flight_with_the_status(puppets: Puppets, status: int) -> None:
    """Also where the process believes that all is well."""
    instance = await puppets.start(serial=True)
    former = instance.pid
    (inference,), execution = puppets.tell(instance, order("exit", n=status))
    with pytest.raises(UnavailableError, match=f"its model process exited with status {status}; "):
        await everything(inference)
    await execution
    await eventually(lambda: instance.pid not in (None, former))
    assert (await puppets.ask(instance, "echo")).error is None


@pytest.mark.slow
async def test_execution_that_takes_too_long_ends_the_process(puppets: Puppets) -> None:
    instance = await puppets.start(serial=True, execution_timeout=0.2)
    former = instance.pid
    (inference,), execution = puppets.tell(instance, order("hang"))
    with pytest.raises(UnavailableError, match=r"an execution took longer than its limit of 0\.2"):
        await everything(inference)
    await execution
    await eventually(lambda: instance.pid not in (None, former))


async def test_dead_process_refuses_requests_with_the_reason(puppets: Puppets) -> None:
    instance = await puppets.start()
    kill(instance)
    await eventually(lambda: not instance.available)
    assert instance.pid is None
    assert not await instance.healthy()
    assert instance.metrics() == {}
    assert "SIGKILL" in instance.why_unavailable
    with pytest.raises(UnavailableError, match="SIGKILL"):
        await puppets.ask(instance, "echo")


async def test_request_sent_to_a_process_just_killed_fails(puppets: Puppets) -> None:
    """The loop has not heard of the death yet."""
    instance = await puppets.start()
    kill(instance)
    with pytest.raises(UnavailableError, match="SIGKILL"):
        await puppets.ask(instance, "echo")


@pytest.mark.slow
async def test_batch_that_a_dying_process_has_not_begun_goes_to_the_next_one(
    puppets: Puppets, tmp_path: Path
) -> None:
    instance = await puppets.start(serial=True, mark=str(tmp_path / "noted"))
    (begun,), _ = puppets.tell(instance, order("stay"))
    (ahead, left), _ = puppets.tell(instance, order("echo"), order("echo"))
    await _noted(tmp_path / "noted", 1)
    left.stream.close()
    kill(instance)
    with pytest.raises(UnavailableError, match="SIGKILL"):
        await everything(begun)
    assert len(await everything(ahead)) == 1
    assert puppets.statistics.in_flight == 0


@pytest.mark.slow
async def test_what_a_process_has_begun_is_not_executed_again(
    puppets: Puppets, tmp_path: Path
) -> None:
    """Even where it has ended before it could say that the batch before that was done."""
    mark = tmp_path / "noted"
    instance = await puppets.start(serial=True, mark=str(mark))
    sent = [
        puppets.tell(instance, order("note")._replace(id=id))[0][0]
        for id in ("done", "die", "waiting")
    ]
    for inference in sent[:2]:
        with pytest.raises(UnavailableError, match="exited with status 9"):
            await everything(inference)
    assert len(await everything(sent[2])) == 1
    assert mark.read_text().split() == ["done", "die", "waiting"]


@pytest.mark.slow
async def test_batch_is_not_sent_a_third_time(puppets: Puppets, tmp_path: Path) -> None:
    """It may be what kills the processes."""
    instance = await puppets.start(serial=True, mark=str(tmp_path / "noted"))
    (first,), _ = puppets.tell(instance, order("stay"))
    (second,), _ = puppets.tell(instance, order("stay"))
    for begun, inference in enumerate((first, second), start=1):
        await _noted(tmp_path / "noted", begun)
        kill(instance)
        with pytest.raises(UnavailableError):
            await everything(inference)


async def test_what_was_sent_ahead_fails_when_the_model_is_stopped(
    puppets: Puppets, tmp_path: Path
) -> None:
    instance = await puppets.start(serial=True, mark=str(tmp_path / "noted"))
    puppets.tell(instance, order("stay"))
    (ahead,), _ = puppets.tell(instance, order("echo"))
    await _noted(tmp_path / "noted", 1)
    await instance.stop()
    with pytest.raises(UnavailableError, match="is being unloaded"):
        await everything(ahead)


@pytest.mark.slow
async def test_death_of_one_instance_does_not_disturb_another(puppets: Puppets) -> None:
    victim, witness = await asyncio.gather(puppets.start(), puppets.start(name="puppet_0_1"))
    inference = puppets.begin(witness, "stream", n=300)
    kill(victim)
    assert len(await everything(inference)) == 300
    assert await witness.healthy()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grandchild", "daemon"])
async def test_grandchildren_die_with_the_process(puppets: Puppets, kind: str) -> None:
    instance = await puppets.start()
    grandchild = int((await puppets.ask(instance, kind)).parameters["pid"])
    kill(instance)
    await eventually(lambda: not alive(grandchild))


async def test_shared_memory_of_a_killed_process_is_removed(puppets: Puppets) -> None:
    instance = await puppets.start()
    memory = str((await puppets.ask(instance, "shared_memory")).parameters["name"])
    assert memory in os.listdir("/dev/shm")
    kill(instance)
    await eventually(lambda: memory not in os.listdir("/dev/shm"))
