"""What a model process has recorded of traced requests comes into their traces before these end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fakes import in_virtual_time, make_inference
from harness.outcomes import raises_nothing
from hosting.parent.in_flight.peer import answer, in_flight, nothing
from hosting.puppets import NOTHING, PATIENCE, Puppets, everything, order
from penstock.core.errors import RequestCancelledError
from penstock.core.request import ParameterValue
from penstock.core.timeline import Timeline, Trace
from penstock.hosting.parent import recordings
from penstock.hosting.parent.in_flight import InFlight
from penstock.hosting.parent.process import ProcessInstance
from penstock.hosting.parent.recordings import Recordings
from penstock.inflight.inference import Inference


class Traced:
    """A trace of one request, and whether it has ended."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[Trace] = asyncio.get_running_loop().create_future()
        self.trace = Trace(1, on_end=self.ended.set_result)
        self.timeline = self.trace.root.nest("m", "1", "", 1)

    def finish(self) -> None:
        """Everything in the server has ended."""
        self.timeline.finish()
        self.trace.root.finish()


def told(number: int, made: int) -> Any:
    return number, [("DONE", 7)], {"made": made}, []


async def test_a_trace_ends_with_its_request() -> None:
    some, traced = Recordings(), Traced()
    some.begin(1, traced.timeline)
    some.add(told(1, 3))
    traced.finish()
    assert not traced.ended.done()
    some.end(1)
    assert traced.ended.done()
    assert traced.timeline.facts == {"made": 3}


async def test_a_cancelled_request_ends_with_what_the_process_tells() -> None:
    some, traced = Recordings(), Traced()
    some.begin(1, traced.timeline)
    traced.finish()
    some.cancelled(1)
    assert not traced.ended.done()
    some.add(told(1, 3))
    assert traced.ended.done()
    assert traced.timeline.marks == [("DONE", 7)]
    some.add(told(1, 9))
    assert traced.timeline.facts == {"made": 3}


@in_virtual_time
async def test_a_process_that_tells_nothing_of_a_cancelled_request_is_not_waited_for() -> None:
    some, traced = Recordings(), Traced()
    some.begin(1, traced.timeline)
    traced.finish()
    some.cancelled(1)
    await asyncio.sleep(recordings.PATIENCE - 0.1)
    assert not traced.ended.done()
    await asyncio.sleep(0.2)
    assert traced.ended.done()


async def test_the_end_of_the_process_is_the_end_of_what_it_tells() -> None:
    some, both = Recordings(), [Traced(), Traced()]
    for number, traced in enumerate(both):
        some.begin(number, traced.timeline)
        traced.finish()
    some.cancelled(0)
    some.clear()
    assert all(traced.ended.done() for traced in both)


@pytest.mark.parametrize("told_before", [True, False])
async def test_a_process_that_goes_on_recording_is_waited_for(told_before: bool) -> None:
    """Unless the rest came before the last response, from another thread."""
    some, traced = Recordings(), Traced()
    some.begin(1, traced.timeline)
    some.goes_on(1)
    if told_before:
        some.add(told(1, 3))
    traced.finish()
    some.answered(1)
    assert traced.ended.done() is told_before
    some.add(told(1, 3))
    assert traced.ended.done()
    assert traced.timeline.facts == {"made": 3}


async def test_what_is_not_traced_is_ignored() -> None:
    some = Recordings()
    with raises_nothing():
        some.cancelled(1)
        some.goes_on(1)
        some.answered(1)
        some.add(told(1, 3))
        some.end(1)
        some.clear()


@pytest.mark.parametrize(
    "last",
    [
        lambda some: answer(some, 1, final=True),
        lambda some: some.on_end(1, memoryview(b"")),
        lambda some: some.on_error((1, "INTERNAL", "broken"), memoryview(b"")),
    ],
    ids=["response", "end", "error"],
)
async def test_a_cancel_that_crosses_the_last_message_ends_the_trace(
    last: Callable[[InFlight], None],
) -> None:
    """The process, which has forgotten the request, tells nothing of a cancellation."""
    some, traced = in_flight(), Traced()
    inference = make_inference()
    inference.record(traced.trace.root, "m")
    some.send([inference], nothing)
    inference.stream.close()
    traced.finish()
    assert not traced.ended.done()
    last(some)
    assert traced.ended.done()


# -- with a process --------------------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def puppets() -> AsyncIterator[Puppets]:
    async with Puppets() as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def instance(puppets: Puppets) -> ProcessInstance:
    return await puppets.start()


def begin(
    puppets: Puppets, instance: ProcessInstance, do: str = "record", **more: ParameterValue
) -> tuple[Inference, asyncio.Future[Trace]]:
    """A traced request to a process, and the end of its trace."""
    traced = Traced()
    inference = Inference(order(do, NOTHING, **more), 1, puppets.statistics)
    inference.record(traced.trace.root, "puppet")
    traced.finish()
    instance.execute([inference], lambda: None)
    return inference, traced.ended


def timeline(inference: Inference) -> Timeline:
    assert inference.timeline is not None
    return inference.timeline


@pytest.mark.asyncio(loop_scope="module")
async def test_a_finished_request_has_what_was_recorded(
    puppets: Puppets, instance: ProcessInstance
) -> None:
    inference, ended = begin(puppets, instance, n=3)
    assert len(await everything(inference)) == 3
    await asyncio.wait_for(ended, PATIENCE)
    assert timeline(inference).facts["made"] == 3
    assert ("DONE", 7) in timeline(inference).marks


@pytest.mark.asyncio(loop_scope="module")
async def test_a_cancelled_request_has_what_its_generator_recorded_while_it_was_closed(
    puppets: Puppets, instance: ProcessInstance
) -> None:
    inference, ended = begin(puppets, instance, n=1 << 30)
    await anext(inference.stream)
    inference.stream.close()
    assert timeline(inference).end
    assert not ended.done()
    await asyncio.wait_for(ended, PATIENCE)
    made = timeline(inference).facts["made"]
    assert isinstance(made, int)
    assert made > 0


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("do", ["hang", "flow", "wait"])
async def test_a_cancelled_request_that_records_nothing_ends_at_once(
    puppets: Puppets,
    instance: ProcessInstance,
    do: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(recordings, "PATIENCE", 10 * PATIENCE)
    inference, ended = begin(puppets, instance, do, until=str(tmp_path / "now"))
    await asyncio.sleep(0)
    inference.stream.close()
    (tmp_path / "now").touch()
    await asyncio.wait_for(ended, PATIENCE)
    assert isinstance(timeline(inference).error, RequestCancelledError)


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_traces_end_with_the_process(puppets: Puppets) -> None:
    instance = await puppets.start(name="puppet_0_1")
    waiting, exits = begin(puppets, instance, "hang"), begin(puppets, instance, "exit", n=3)
    for inference, ended in (waiting, exits):
        await asyncio.wait_for(ended, PATIENCE)
        assert timeline(inference).error is not None
