"""A model process at work: answers, back-pressure, cancellation, and what it tells."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from fakes import turns
from hosting.puppets import PATIENCE, Puppets, eventually, everything, numbers, order
from penstock.core.errors import (
    InferenceError,
    InternalError,
    NotFoundError,
    RequestCancelledError,
)
from penstock.core.flow_control import WINDOW
from penstock.core.log.log_fields import fields_of
from penstock.core.tensor import Tensor
from penstock.hosting.link.link import LARGEST_HEAD
from penstock.hosting.link.messages import LONGEST_TEXT
from penstock.hosting.parent.process import ProcessInstance

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def puppets() -> AsyncIterator[Puppets]:
    async with Puppets() as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def instance(puppets: Puppets) -> ProcessInstance:
    return await puppets.start()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def serial(puppets: Puppets) -> ProcessInstance:
    return await puppets.start(serial=True, name="puppet_0_1")


@pytest.fixture(params=["instance", "serial"])
def either(
    request: pytest.FixtureRequest, instance: ProcessInstance, serial: ProcessInstance
) -> ProcessInstance:
    return serial if request.param == "serial" else instance


# -- answers --------------------------------------------------------------------------------------


async def test_tensors_go_there_and_come_back(puppets: Puppets, instance: ProcessInstance) -> None:
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


async def test_parameters_keep_their_types(puppets: Puppets, instance: ProcessInstance) -> None:
    response = await puppets.ask(instance, "echo", b=True, i=1 << 40, f=0.5, s="é")
    assert response.parameters == {"do": "echo", "b": True, "i": 1 << 40, "f": 0.5, "s": "é"}
    assert [type(v) for v in response.parameters.values()] == [str, bool, int, float, str]


async def test_blocking_work_runs_on_one_thread_of_its_own(
    puppets: Puppets, instance: ProcessInstance
) -> None:
    response = await puppets.ask(instance, "on_thread")
    assert response.parameters["same"]
    assert response.parameters["name"] != "MainThread"


async def test_stream_keeps_its_order(puppets: Puppets, instance: ProcessInstance) -> None:
    inference = puppets.begin(instance, "stream", n=200)
    assert numbers(await everything(inference)) == list(range(200))


async def test_pushed_stream_keeps_its_order(puppets: Puppets, instance: ProcessInstance) -> None:
    """An engine that does not wait is far ahead of the reader; nothing overtakes."""
    inference = puppets.begin(instance, "push", n=200)
    assert numbers(await everything(inference)) == list(range(200))


async def test_streams_run_side_by_side(puppets: Puppets, instance: ProcessInstance) -> None:
    started = [puppets.begin(instance, "stream", n=n) for n in (0, 1, 50)]
    lengths = [len(await everything(inference)) for inference in started]
    assert lengths == [0, 1, 50]


async def test_errors_keep_class_and_text(puppets: Puppets, instance: ProcessInstance) -> None:
    with pytest.raises(NotFoundError, match=r"^no such thing$"):
        await puppets.ask(instance, "missing")
    with pytest.raises(InternalError, match=r"^ValueError: boom$"):
        await puppets.ask(instance, "boom")


async def test_error_in_a_stream_comes_after_what_was_sent(
    puppets: Puppets, instance: ProcessInstance
) -> None:
    inference = puppets.begin(instance, "failing_stream")
    assert numbers([await anext(inference.stream)]) == [0]
    with pytest.raises(InternalError, match="boom in the middle"):
        await anext(inference.stream)


async def test_batch_is_answered_one_by_one(puppets: Puppets, instance: ProcessInstance) -> None:
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
async def test_senseless_answer_is_an_error_and_the_next_request_is_served(
    puppets: Puppets, either: ProcessInstance, do: str, text: str
) -> None:
    with pytest.raises(InferenceError, match=text):
        await puppets.ask(either, do)
    assert (await puppets.ask(either, "echo")).parameters == {"do": "echo"}


async def test_numpy_values_become_plain_ones(puppets: Puppets, instance: ProcessInstance) -> None:
    response = await puppets.ask(instance, "numpy_values")
    assert response.parameters == {"f": 0.5, "i": 7, "b": True}
    assert response.outputs["OUT"].shape == (2,)


async def test_buffer_is_counted_in_bytes(puppets: Puppets, instance: ProcessInstance) -> None:
    response = await puppets.ask(instance, "wide_view")
    assert response.outputs["OUT"].numpy().tolist() == [1.5, 2.5]


async def test_serial_instance_is_busy_until_the_batch_is_done(
    puppets: Puppets, serial: ProcessInstance, tmp_path: Path
) -> None:
    (inference,), execution = puppets.tell(serial, order("wait", until=str(tmp_path / "now")))
    await turns()
    assert not execution.done()
    (tmp_path / "now").touch()
    await everything(inference)
    await asyncio.wait_for(execution, PATIENCE)


async def test_serial_backend_executes_a_batch_sent_ahead_when_its_turn_comes(
    puppets: Puppets, serial: ProcessInstance, tmp_path: Path
) -> None:
    (first,), execution = puppets.tell(serial, order("wait", until=str(tmp_path / "now")))
    await turns()
    execution.cancel()  # which only ends the wait for room
    (ahead,), _ = puppets.tell(serial, order("echo"))
    await turns()
    (tmp_path / "now").touch()
    await everything(ahead)
    assert first.stream.ended


async def test_other_instance_takes_the_next_batch_at_once(
    puppets: Puppets, instance: ProcessInstance
) -> None:
    counted = puppets.statistics.execution_count
    (inference,), execution = puppets.tell(instance, order("hang"))
    await asyncio.sleep(0)
    assert execution.done()
    inference.stream.close()
    await eventually(lambda: puppets.statistics.execution_count > counted)  # others count theirs


async def test_executions_are_counted_where_the_time_was_spent(
    puppets: Puppets, serial: ProcessInstance
) -> None:
    before = puppets.statistics.execution_count
    _, execution = puppets.tell(serial, order("echo"), order("echo"), order("echo"))
    await execution
    assert puppets.statistics.execution_count == before + 1
    assert puppets.statistics.batches[3].compute_infer.ns > 0


# -- back-pressure and cancellation ---------------------------------------------------------------


async def test_process_sends_no_more_than_the_window_ahead_of_the_reader(
    puppets: Puppets, instance: ProcessInstance
) -> None:
    inference = puppets.begin(instance, "stream", n=1000)
    await eventually(lambda: inference.stream.backlog == WINDOW.responses)
    await puppets.settle(instance)
    assert inference.stream.backlog == WINDOW.responses
    inference.stream.take_ready(5)
    await puppets.settle(instance)
    assert inference.stream.backlog == WINDOW.responses


async def test_generator_is_asked_no_further_than_anybody_reads(
    puppets: Puppets, instance: ProcessInstance
) -> None:
    before = await puppets.report(instance, "made")
    inference = puppets.begin(instance, "stream", n=1000)
    await eventually(lambda: inference.stream.backlog == WINDOW.responses)
    await puppets.settle(instance)
    assert await puppets.report(instance, "made") <= before + WINDOW.responses + 2


@pytest.mark.parametrize("do", ["drip", "flow"])
async def test_reader_that_leaves_ends_the_work(
    puppets: Puppets, instance: ProcessInstance, do: str
) -> None:
    before = await puppets.report(instance, "closed")
    inference = puppets.begin(instance, do)
    await anext(inference.stream)
    inference.stream.close()
    await eventually(lambda: closed(puppets, instance, before + 1))
    made = await puppets.report(instance, "made")
    await puppets.settle(instance)
    assert await puppets.report(instance, "made") == made


async def test_reader_that_left_before_the_first_response_ends_the_work(
    puppets: Puppets, instance: ProcessInstance, tmp_path: Path
) -> None:
    before = await puppets.report(instance, "closed")
    inference = puppets.begin(instance, "flow_late", until=str(tmp_path / "now"))
    await puppets.report(instance, "made")  # it has begun; its first response comes later
    inference.stream.close()
    await puppets.report(instance, "made")  # the process knows of it
    (tmp_path / "now").touch()
    await eventually(lambda: closed(puppets, instance, before + 1))


@pytest.mark.contract("PY-15")
@pytest.mark.parametrize("do", ["drip", "flow", "flow_late"])
async def test_reader_that_wants_no_more_reads_the_rest_and_the_error(
    puppets: Puppets, instance: ProcessInstance, do: str, tmp_path: Path
) -> None:
    before = await puppets.report(instance, "closed")
    inference = puppets.begin(instance, do, until=str(tmp_path / "now"))
    await puppets.report(instance, "made")  # it has begun
    inference.stream.stop()
    await puppets.report(instance, "made")  # the process knows of it
    (tmp_path / "now").touch()
    with pytest.raises(RequestCancelledError, match="request was cancelled"):
        await everything(inference)
    await eventually(lambda: closed(puppets, instance, before + 1))
    assert (await puppets.ask(instance, "echo")).parameters == {"do": "echo"}


async def test_request_whose_reader_left_before_its_turn_is_not_executed(
    puppets: Puppets, instance: ProcessInstance
) -> None:
    before = await puppets.report(instance, "executed")
    batch, _ = puppets.tell(instance, order("echo"), order("echo"))
    await asyncio.sleep(0)  # now it is on its way
    batch[0].stream.close()
    await everything(batch[1])
    assert await puppets.report(instance, "executed") == before + 2  # with this question


async def test_reader_that_leaves_harms_no_neighbour(
    puppets: Puppets, instance: ProcessInstance
) -> None:
    batch, _ = puppets.tell(instance, order("drip"), order("stream", n=100))
    await anext(batch[0].stream)
    batch[0].stream.close()
    assert numbers(await everything(batch[1])) == list(range(100))


async def test_cancelling_leaves_no_tasks_in_the_process(
    puppets: Puppets, instance: ProcessInstance
) -> None:
    before = await puppets.report(instance, "closed")
    tasks = await puppets.report(instance, "tasks")
    for _ in range(20):
        inference = puppets.begin(instance, "drip")
        await anext(inference.stream)
        inference.stream.close()
    await eventually(lambda: closed(puppets, instance, before + 20))
    assert await puppets.report(instance, "tasks") == tasks


async def test_tensors_of_readers_that_left_take_no_memory(
    puppets: Puppets, instance: ProcessInstance
) -> None:
    """What was on its way when the reader left is freed like everything else."""
    before = shared_bytes(instance)
    for _ in range(100):
        inference = puppets.begin(instance, "flood")
        await anext(inference.stream)
        inference.stream.close()
    await eventually(lambda: shared_bytes(instance) - before < 3 * WINDOW.responses << 20)


# -- what the process tells -----------------------------------------------------------------------


async def test_metrics_are_what_the_backend_told_last(
    puppets: Puppets, instance: ProcessInstance
) -> None:
    await puppets.ask(instance, "show", n=1.5)
    await eventually(lambda: instance.metrics().get("shown") == 1.5)
    await puppets.ask(instance, "show", n=2.5)
    await eventually(lambda: instance.metrics().get("shown") == 2.5)


async def test_histograms_are_those_of_the_backend(
    puppets: Puppets, instance: ProcessInstance
) -> None:
    for number in (1.5, 2.5):
        await puppets.ask(instance, "show", n=number)
    await eventually(
        lambda: list(instance.histograms().get("observed", ())) == [[2.0], [1, 1], 4.0, []]
    )


async def test_log_records_join_the_servers_log(
    puppets: Puppets, instance: ProcessInstance, caplog: pytest.LogCaptureFixture
) -> None:
    await puppets.ask(instance, "log")
    record = ("puppet", logging.WARNING, "a word from inside")
    await eventually(lambda: record in caplog.record_tuples)
    fields = [fields_of(one) for one in caplog.records if one.name == "puppet"]
    assert fields == [{"model": "puppet", "instance": "puppet_0_0", "request_id": "r-1"}]


async def test_logged_exceptions_bring_their_traceback(
    puppets: Puppets, instance: ProcessInstance, caplog: pytest.LogCaptureFixture
) -> None:
    told = re.compile(r"^something is missing\nTraceback .*KeyError: 'lost'$", re.DOTALL)
    await puppets.ask(instance, "log_failure")
    await eventually(lambda: any(map(told.match, caplog.messages)))


# -- helpers --------------------------------------------------------------------------------------


def shared_bytes(instance: ProcessInstance) -> int:
    """Memory that the process shares with this one."""
    files = [file for file in Path(f"/proc/{instance.pid}/fd").iterdir() if is_shared(file)]
    return sum(file.stat().st_blocks * 512 for file in files)


def is_shared(file: Path) -> bool:
    with suppress(FileNotFoundError):  # it was closed meanwhile
        return "memfd:penstock" in str(file.readlink())
    return False


async def closed(puppets: Puppets, instance: ProcessInstance, count: int) -> bool:
    return bool(await puppets.report(instance, "closed") == count)


# -- answers too large for the link -----------------------------------------------------------


_BEYOND = "x" * (LARGEST_HEAD + 1)


async def test_response_with_too_much_of_a_header_is_an_error_and_harms_no_other(
    puppets: Puppets, instance: ProcessInstance
) -> None:
    """Even if both would have been in one message of the link."""
    (large, small), _ = puppets.tell(
        instance, order("echo", text=_BEYOND), order("echo", text="short")
    )
    (answered,) = await everything(small)
    assert answered.parameters["text"] == "short"
    with pytest.raises(InternalError, match=f"exceeds the limit .* {LARGEST_HEAD} of them"):
        await everything(large)


async def test_stream_ends_at_a_response_that_cannot_be_sent(
    puppets: Puppets, instance: ProcessInstance
) -> None:
    inference = puppets.begin(instance, "swell", text=_BEYOND)
    assert (await anext(inference.stream)).parameters == {}
    with pytest.raises(InternalError, match="exceeds the limit"):
        await everything(inference)


async def test_responses_that_are_too_much_together_come_one_by_one(
    puppets: Puppets, instance: ProcessInstance
) -> None:
    orders = [order("echo", text="x" * (LARGEST_HEAD // 4)) for _ in range(8)]
    inferences, _ = puppets.tell(instance, *orders)
    responses = [(await everything(one))[0] for one in inferences]
    assert [len(str(one.parameters["text"])) for one in responses] == [LARGEST_HEAD // 4] * 8


@pytest.mark.slow
async def test_long_text_of_an_error_is_cut(puppets: Puppets, instance: ProcessInstance) -> None:
    with pytest.raises(InferenceError) as raised:
        await puppets.ask(instance, "complain", text=_BEYOND)
    assert raised.value.message.startswith("xxx")
    assert len(raised.value.message) == LONGEST_TEXT
