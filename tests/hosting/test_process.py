"""The life of a model process: start, death and return, end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hosting.puppets import (
    PATIENCE,
    Puppets,
    alive,
    descriptors,
    eventually,
    everything,
    order,
)
from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    UnavailableError,
)
from penstock.core.placement import Placement
from penstock.hosting.process import ProcessInstance

# -- starting -------------------------------------------------------------------------------------


async def test_backend_answers_from_another_process(puppets: Puppets) -> None:
    instance = await puppets.start()
    assert await puppets.report(instance, "pid") == instance.pid != os.getpid()


async def test_a_process_has_answered_when_its_streams_have_ended(puppets: Puppets) -> None:
    instance = await puppets.start()
    await asyncio.wait_for(instance.answered(), PATIENCE)
    inference = puppets.begin(instance, "report")
    waiting = asyncio.ensure_future(instance.answered())
    await everything(inference)
    await asyncio.wait_for(waiting, PATIENCE)
    assert inference.abandoned


@pytest.mark.contract("I-08")
async def test_a_process_runs_on_the_cores_of_its_policy(puppets: Puppets) -> None:
    core = max(os.sched_getaffinity(0))
    instance = await puppets.start(placement=Placement((core, core)))
    assert instance.pid is not None
    assert os.sched_getaffinity(instance.pid) == {core} != os.sched_getaffinity(0)


async def test_a_policy_that_cannot_be_kept_prevents_the_start(puppets: Puppets) -> None:
    with pytest.raises(InvalidRequestError, match="Unable to set NUMA thread affinity"):
        await puppets.start(placement=Placement((900, 900)))


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"initialize": "raise"}, InternalError, r"^ValueError: cannot do it$"),
        ({"initialize": "refuse"}, InvalidRequestError, r"^parameter 'x' is wrong$"),
        ({"initialize": "exit"}, UnavailableError, r"'puppet_0_0' exited with status 3$"),
        ({"target": "hosted.puppet:Unloadable"}, InternalError, r"no module named 'engine'$"),
        ({"target": "hosted.puppet:Nobody"}, InternalError, r"has no attribute 'Nobody'$"),
        ({"target": "hosted.nothing:Puppet"}, InternalError, r"No module named 'hosted.nothing'$"),
    ],
)
async def test_what_prevents_the_start_is_told(
    puppets: Puppets, settings: dict[str, str], error: type[InferenceError], text: str
) -> None:
    instance = puppets.make(**settings)  # type: ignore[arg-type]
    with pytest.raises(error, match=text):
        await instance.start()
    assert not instance.available


async def test_failed_start_leaves_nothing_behind(puppets: Puppets) -> None:
    await (await puppets.start()).stop()  # what is opened once, such as the reaper's pipe, is open
    before = descriptors()
    with pytest.raises(InternalError):
        await puppets.make(initialize="raise").start()
    assert children() == []
    await eventually(lambda: descriptors() == before)


async def test_python_that_is_not_there_leaves_nothing_behind(puppets: Puppets) -> None:
    before = descriptors()
    with pytest.raises(FileNotFoundError):
        await puppets.make(python="/no/such/python").start()
    await eventually(lambda: descriptors() == before)


async def test_cancelled_start_ends_the_process(puppets: Puppets) -> None:
    starting = asyncio.ensure_future(puppets.make(initialize="hang").start())
    await eventually(lambda: bool(children()))
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    assert children() == []


# -- death and return -----------------------------------------------------------------------------


@pytest.mark.parametrize("do", ["hang", "drip", "flow"])
async def test_killed_process_fails_what_is_in_flight_with_the_reason(
    puppets: Puppets, do: str
) -> None:
    instance = await puppets.start()
    inference = puppets.begin(instance, do)
    await settled(puppets, instance)
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


async def test_exit_fails_what_is_in_flight_with_the_status(puppets: Puppets) -> None:
    instance = await puppets.start(serial=True)
    (inference,), execution = puppets.tell(instance, order("exit", n=3))
    with pytest.raises(UnavailableError, match="its model process exited with status 3; "):
        await everything(inference)
    await execution


async def test_execution_that_takes_too_long_ends_the_process(puppets: Puppets) -> None:
    instance = await puppets.start(serial=True, execution_timeout=0.2)
    former = instance.pid
    (inference,), execution = puppets.tell(instance, order("hang"))
    with pytest.raises(UnavailableError, match=r"an execution took longer than its limit of 0\.2"):
        await everything(inference)
    await execution
    await eventually(lambda: instance.pid not in (None, former))


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


async def test_batch_that_a_dying_process_has_not_begun_goes_to_the_next_one(
    puppets: Puppets,
) -> None:
    instance = await puppets.start(serial=True)
    (begun,), _ = puppets.tell(instance, order("hang"))
    (ahead, left), _ = puppets.tell(instance, order("echo"), order("echo"))
    await asyncio.sleep(0.1)
    left.stream.close()
    kill(instance)
    with pytest.raises(UnavailableError, match="SIGKILL"):
        await everything(begun)
    assert len(await everything(ahead)) == 1
    assert puppets.statistics.in_flight == 0


async def test_what_a_process_has_begun_is_not_executed_again(
    puppets: Puppets, tmp_path: Path
) -> None:
    """Even where it has ended before it could say that the batch before that was done."""
    mark = tmp_path / "noted"
    instance = await puppets.start(serial=True, mark=str(mark))
    sent = [
        puppets.tell(instance, replace(order("note"), id=id))[0][0]
        for id in ("done", "die", "waiting")
    ]
    for inference in sent[:2]:
        with pytest.raises(UnavailableError, match="exited with status 9"):
            await everything(inference)
    assert len(await everything(sent[2])) == 1
    assert mark.read_text().split() == ["done", "die", "waiting"]


async def test_batch_is_not_sent_a_third_time(puppets: Puppets) -> None:
    """It may be what kills the processes."""
    instance = await puppets.start(serial=True)
    (first,), _ = puppets.tell(instance, order("hang"))
    (second,), _ = puppets.tell(instance, order("hang"))
    for inference in (first, second):
        await eventually(lambda: instance.available)
        await asyncio.sleep(0.1)
        kill(instance)
        with pytest.raises(UnavailableError):
            await everything(inference)


async def test_what_was_sent_ahead_fails_when_the_model_is_stopped(puppets: Puppets) -> None:
    instance = await puppets.start(serial=True)
    puppets.tell(instance, order("hang"))
    (ahead,), _ = puppets.tell(instance, order("echo"))
    await asyncio.sleep(0.1)
    await instance.stop()
    with pytest.raises(UnavailableError, match="is being unloaded"):
        await everything(ahead)


async def test_death_of_one_instance_does_not_disturb_another(puppets: Puppets) -> None:
    victim, witness = await asyncio.gather(puppets.start(), puppets.start(name="puppet_0_1"))
    inference = puppets.begin(witness, "stream", n=300)
    kill(victim)
    assert len(await everything(inference)) == 300
    assert await witness.healthy()


async def test_grandchildren_die_with_the_process(puppets: Puppets) -> None:
    instance = await puppets.start()
    grandchild = int((await puppets.ask(instance, "grandchild")).parameters["pid"])
    kill(instance)
    await eventually(lambda: not alive(grandchild))


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


async def test_broken_metrics_do_not_hide_bad_health(puppets: Puppets) -> None:
    instance = await puppets.start()
    former = instance.pid
    await puppets.ask(instance, "break_metrics")
    await asyncio.sleep(0.6)  # the process has looked at them at least once
    await puppets.ask(instance, "sicken")
    await eventually(lambda: instance.pid not in (None, former))


async def test_probe_ends_when_the_process_does(puppets: Puppets) -> None:
    instance = await puppets.start()
    os.kill(pid_of(instance), signal.SIGSTOP)
    probes = [asyncio.ensure_future(instance.healthy()) for _ in range(3)]
    await asyncio.sleep(0.05)
    kill(instance)
    assert await asyncio.wait_for(asyncio.gather(*probes), 2.0) == [False, False, False]


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


# -- stopping -------------------------------------------------------------------------------------


async def test_stop_lets_the_backend_finalize(puppets: Puppets, tmp_path: Path) -> None:
    mark = tmp_path / "finalized"
    instance = await puppets.start(mark=str(mark))
    pid = pid_of(instance)
    await instance.stop()
    assert mark.exists()
    assert not alive(pid)
    assert not instance.available


async def test_stop_while_streaming_fails_the_stream(puppets: Puppets, tmp_path: Path) -> None:
    mark = tmp_path / "finalized"
    instance = await puppets.start(mark=str(mark))
    inference = puppets.begin(instance, "drip")
    await anext(inference.stream)
    await instance.stop()
    with pytest.raises(UnavailableError, match="model 'puppet' is being unloaded"):
        await everything(inference)
    assert mark.exists()


@pytest.mark.parametrize("how", ["raise", "exit"])
async def test_finalize_that_fails_ends_the_process_all_the_same(
    puppets: Puppets, how: str
) -> None:
    instance = await puppets.start(finalize=how)
    pid = pid_of(instance)
    await instance.stop()
    assert not alive(pid)


async def test_finalize_that_hangs_is_cut_short(puppets: Puppets) -> None:
    instance = await puppets.start(finalize="hang", stop_timeout=0.2)
    pid = pid_of(instance)
    async with asyncio.timeout(5):
        await instance.stop()
    assert not alive(pid)


async def test_stop_takes_grandchildren_along(puppets: Puppets) -> None:
    instance = await puppets.start()
    grandchild = int((await puppets.ask(instance, "grandchild")).parameters["pid"])
    await instance.stop()
    await eventually(lambda: not alive(grandchild))


async def test_stop_during_a_restart_leaves_no_process(puppets: Puppets) -> None:
    instance = await puppets.start()
    kill(instance)
    await eventually(lambda: not instance.available)
    await instance.stop()
    assert children() == []


async def test_stop_of_what_never_ran_does_nothing(puppets: Puppets) -> None:
    await puppets.make().stop()


async def test_many_lives_leave_nothing_behind(puppets: Puppets) -> None:
    await (await puppets.start()).stop()
    files, tasks = descriptors(), len(asyncio.all_tasks())
    for _ in range(3):
        instances = await asyncio.gather(*(puppets.start(name=f"p_{n}") for n in range(4)))
        for instance in instances:
            puppets.begin(instance, "drip")
        kill(instances[0])
        await asyncio.gather(*(instance.stop() for instance in instances))
    await eventually(lambda: len(asyncio.all_tasks()) <= tasks)
    assert children() == []
    assert descriptors() == files
    assert puppets.statistics.in_flight == 0


# -- helpers --------------------------------------------------------------------------------------


def pid_of(instance: ProcessInstance) -> int:
    assert instance.pid is not None
    return instance.pid


def kill(instance: ProcessInstance) -> None:
    os.kill(pid_of(instance), signal.SIGKILL)


def children() -> list[int]:
    """Model processes of this process."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in found}
    return [pid for pid, command in commands.items() if b"bootstrap.py" in command]


async def settled(puppets: Puppets, instance: ProcessInstance) -> None:
    """Give the process two turns to do what it is going to do."""
    for _ in range(2):
        await puppets.report(instance, "made")
        await asyncio.sleep(0.02)
