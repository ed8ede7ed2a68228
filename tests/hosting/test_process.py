"""`ProcessInstance` and the model process behind it."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from hosting.puppets import (
    PATIENCE,
    Puppets,
    alive,
    descriptors,
    eventually,
    everything,
    numbers,
    order,
)

from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    RequestCancelledError,
    UnavailableError,
)
from penstock.core.inference import Inference
from penstock.core.stream import HIGH_WATER
from penstock.core.tensor import Tensor
from penstock.hosting.messages import WINDOW
from penstock.hosting.process import ProcessInstance

# -- starting -------------------------------------------------------------------------------------


async def test_backend_answers_from_another_process(puppets: Puppets) -> None:
    instance = await puppets.start()
    assert await puppets.report(instance, "pid") == instance.pid != os.getpid()


async def test_tensors_go_there_and_come_back(puppets: Puppets) -> None:
    instance = await puppets.start()
    sent = {
        "SMALL": Tensor.from_numpy(np.arange(6, dtype=np.int16).reshape(2, 3)),
        "EMPTY": Tensor.from_numpy(np.empty((0, 4), np.float32)),
        "LARGE": Tensor.from_numpy(np.arange(3_000_000, dtype=np.uint32)),
        "TEXT": Tensor.from_strings(["a", "", "\0\n"]),
    }
    (inference,), _ = puppets.tell(instance, order("echo", sent))
    (response,) = await everything(inference)
    for name, tensor in sent.items():
        np.testing.assert_array_equal(response.outputs[name].numpy(), tensor.numpy())


async def test_parameters_keep_their_types(puppets: Puppets) -> None:
    instance = await puppets.start()
    response = await puppets.ask(instance, "echo", b=True, i=1 << 40, f=0.5, s="é")
    assert response.parameters == {"do": "echo", "b": True, "i": 1 << 40, "f": 0.5, "s": "é"}
    assert [type(v) for v in response.parameters.values()] == [str, bool, int, float, str]


async def test_blocking_work_runs_on_one_thread_of_its_own(puppets: Puppets) -> None:
    response = await puppets.ask(await puppets.start(), "on_thread")
    assert response.parameters["same"]
    assert response.parameters["name"] != "MainThread"


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
    assert descriptors() == before


async def test_cancelled_start_ends_the_process(puppets: Puppets) -> None:
    starting = asyncio.ensure_future(puppets.make(initialize="hang").start())
    await eventually(lambda: bool(children()))
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    await eventually(lambda: not children())


# -- answers --------------------------------------------------------------------------------------


async def test_stream_keeps_its_order(puppets: Puppets) -> None:
    inference = puppets.begin(await puppets.start(), "stream", n=200)
    assert numbers(await everything(inference)) == list(range(200))


async def test_pushed_stream_keeps_its_order(puppets: Puppets) -> None:
    """An engine that does not wait is far ahead of the reader; nothing overtakes."""
    inference = puppets.begin(await puppets.start(), "push", n=200)
    assert numbers(await everything(inference)) == list(range(200))


async def test_streams_run_side_by_side(puppets: Puppets) -> None:
    instance = await puppets.start()
    started = [puppets.begin(instance, "stream", n=n) for n in (0, 1, 50)]
    lengths = [len(await everything(inference)) for inference in started]
    assert lengths == [0, 1, 50]


async def test_errors_keep_class_and_text(puppets: Puppets) -> None:
    instance = await puppets.start()
    with pytest.raises(NotFoundError, match=r"^no such thing$"):
        await puppets.ask(instance, "missing")
    with pytest.raises(InternalError, match=r"^ValueError: boom$"):
        await puppets.ask(instance, "boom")


async def test_error_in_a_stream_comes_after_what_was_sent(puppets: Puppets) -> None:
    inference = puppets.begin(await puppets.start(), "failing_stream")
    assert numbers([await anext(inference.stream)]) == [0]
    with pytest.raises(InternalError, match="boom in the middle"):
        await anext(inference.stream)


async def test_batch_is_answered_one_by_one(puppets: Puppets) -> None:
    instance = await puppets.start()
    batch, _ = puppets.tell(instance, order("missing"), order("stream", n=2), order("report"))
    with pytest.raises(NotFoundError):
        await everything(batch[0])
    assert [len(await everything(inference)) for inference in batch[1:]] == [2, 1]


@pytest.mark.parametrize(
    ("do", "text"),
    [
        ("nothing", "TypeError"),
        ("forget", "0 outcomes for 1 requests"),
        ("cancelled", "cancelled"),
        ("unspeakable", "x"),
    ],
)
@pytest.mark.parametrize("serial", [True, False])
async def test_senseless_answer_is_an_error_and_the_next_request_is_served(
    puppets: Puppets, do: str, text: str, serial: bool
) -> None:
    instance = await puppets.start(serial=serial)
    with pytest.raises(InferenceError, match=text):
        await puppets.ask(instance, do)
    assert (await puppets.ask(instance, "echo")).parameters == {"do": "echo"}


async def test_numpy_values_become_plain_ones(puppets: Puppets) -> None:
    response = await puppets.ask(await puppets.start(), "numpy_values")
    assert response.parameters == {"f": 0.5, "i": 7, "b": True}
    assert response.outputs["OUT"].shape == (2,)


async def test_buffer_is_counted_in_bytes(puppets: Puppets) -> None:
    response = await puppets.ask(await puppets.start(), "wide_view")
    assert response.outputs["OUT"].numpy().tolist() == [1.5, 2.5]


async def test_serial_instance_is_busy_until_the_batch_is_done(puppets: Puppets) -> None:
    instance = await puppets.start(serial=True)
    _, execution = puppets.tell(instance, order("hang"))
    _, other = puppets.tell(await puppets.start(name="other"), order("hang"))
    await asyncio.wait([other], timeout=PATIENCE)
    assert other.done()
    assert not execution.done()


async def test_executions_are_counted_where_the_time_was_spent(puppets: Puppets) -> None:
    instance = await puppets.start(serial=True)
    _, execution = puppets.tell(instance, order("echo"), order("echo"))
    await execution
    assert puppets.statistics.execution_count == 1
    assert puppets.statistics.batches[2].compute_infer.ns > 0


# -- back-pressure and cancellation -----------------------------------------------------------------


async def test_process_sends_no_more_than_the_window_ahead_of_the_reader(puppets: Puppets) -> None:
    instance = await puppets.start()
    inference = puppets.begin(instance, "stream", n=1000)
    await eventually(lambda: inference.stream.backlog == WINDOW)
    await settled(puppets, instance)
    assert inference.stream.backlog == WINDOW
    inference.stream.take(5)
    await settled(puppets, instance)
    assert inference.stream.backlog == WINDOW


async def test_generator_is_asked_no_further_than_anybody_reads(puppets: Puppets) -> None:
    instance = await puppets.start()
    inference = puppets.begin(instance, "stream", n=1000)
    await eventually(lambda: inference.stream.backlog == WINDOW)
    await settled(puppets, instance)
    assert await puppets.report(instance, "made") <= WINDOW + HIGH_WATER + 1


@pytest.mark.parametrize("do", ["drip", "flow"])
async def test_reader_that_leaves_ends_the_work(puppets: Puppets, do: str) -> None:
    instance = await puppets.start()
    inference = puppets.begin(instance, do)
    await anext(inference.stream)
    inference.stream.close()
    await eventually(lambda: closed(puppets, instance, 1))
    made = await puppets.report(instance, "made")
    await settled(puppets, instance)
    assert await puppets.report(instance, "made") == made


async def test_reader_that_left_before_the_first_response_ends_the_work(puppets: Puppets) -> None:
    instance = await puppets.start()
    inference = puppets.begin(instance, "flow_late")
    await asyncio.sleep(0)
    inference.stream.close()
    await eventually(lambda: closed(puppets, instance, 1))


async def test_reader_that_leaves_harms_no_neighbour(puppets: Puppets) -> None:
    instance = await puppets.start()
    batch, _ = puppets.tell(instance, order("drip"), order("stream", n=100))
    await anext(batch[0].stream)
    batch[0].stream.close()
    assert numbers(await everything(batch[1])) == list(range(100))


async def test_request_that_nobody_waits_for_is_not_sent(puppets: Puppets) -> None:
    """The reader may leave between the scheduler's choice and the execution."""
    instance = await puppets.start()
    batch, execution = puppets.tell(instance, order("stream", n=1000), order("echo"))
    batch[0].stream.close()
    await execution
    await everything(batch[1])
    assert await puppets.report(instance, "executed") == 2  # the echo and this report
    assert puppets.statistics.pending == 0


async def test_cancelling_leaves_no_tasks_in_the_process(puppets: Puppets) -> None:
    instance = await puppets.start()
    tasks = await puppets.report(instance, "tasks")
    for _ in range(20):
        inference = puppets.begin(instance, "drip")
        await anext(inference.stream)
        inference.stream.close()
    await eventually(lambda: closed(puppets, instance, 20))
    assert await puppets.report(instance, "tasks") == tasks


# -- death and return -------------------------------------------------------------------------------


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


async def test_exit_fails_what_is_in_flight_with_the_status(puppets: Puppets) -> None:
    instance = await puppets.start(serial=True)
    (inference,), execution = puppets.tell(instance, order("exit", n=3))
    with pytest.raises(UnavailableError, match="its model process exited with status 3; "):
        await everything(inference)
    await execution


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
    for _ in range(5):
        await eventually(lambda: instance.available)
        kill(instance)
        await eventually(lambda: not instance.available)
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


# -- stopping ---------------------------------------------------------------------------------------


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


# -- what the process tells -------------------------------------------------------------------------


async def test_metrics_are_what_the_backend_told_last(puppets: Puppets) -> None:
    instance = await puppets.start()
    await puppets.ask(instance, "show", n=1.5)
    await eventually(lambda: instance.metrics() == {"shown": 1.5})
    await puppets.ask(instance, "show", n=2.5)
    await eventually(lambda: instance.metrics() == {"shown": 2.5})


async def test_broken_metrics_do_not_hide_bad_health(puppets: Puppets) -> None:
    instance = await puppets.start()
    former = instance.pid
    await puppets.ask(instance, "break_metrics")
    await asyncio.sleep(0.6)  # the process has looked at them at least once
    await puppets.ask(instance, "sicken")
    await eventually(lambda: instance.pid not in (None, former))


async def test_log_records_join_the_servers_log(
    puppets: Puppets, caplog: pytest.LogCaptureFixture
) -> None:
    instance = await puppets.start()
    await puppets.ask(instance, "log")
    await eventually(lambda: ("puppet", logging.WARNING, "a word from inside") in caplog.record_tuples)


async def test_logged_exceptions_bring_their_traceback(
    puppets: Puppets, caplog: pytest.LogCaptureFixture
) -> None:
    instance = await puppets.start()
    await puppets.ask(instance, "log_failure")
    await eventually(lambda: "something is missing" in caplog.messages[-1:][0])
    assert re.search(r"^something is missing\nTraceback .*KeyError: 'lost'$", caplog.messages[-1], re.S)


# -- helpers ----------------------------------------------------------------------------------------


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


async def closed(puppets: Puppets, instance: ProcessInstance, count: int) -> bool:
    return bool(await puppets.report(instance, "closed") == count)
