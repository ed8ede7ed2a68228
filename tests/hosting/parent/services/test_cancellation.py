"""Requests of a model process that it cancels or stops, or that outlive it."""

from __future__ import annotations

import pytest

from hosting.parent.services.calling_process import CallingProcess, response, turn
from penstock.core.errors import RequestCancelledError
from penstock.core.stream import ResponseStream
from penstock.hosting.link.messages import Kind


async def test_cancelled_call_cancels_its_request() -> None:
    process = CallingProcess()
    process.call("a")
    process.call("bb")
    await turn()
    process.tell(Kind.CALL_CANCEL, 1)
    assert process.services.closed == ["a"]
    assert process.said == [(Kind.CALL_END, 1)]


@pytest.mark.contract("PY-15")
async def test_call_that_is_stopped_is_read_to_its_end() -> None:
    process = CallingProcess()
    process.call("a", "many", decoupled=True)
    stream, told = process.services.streams["a"], list[ResponseStream]()
    stream.connect(lambda: None, on_stop=told.append)
    process.tell(Kind.CALL_STOP, 1)
    assert told == [stream]
    stream.send(response(1))
    stream.fail(RequestCancelledError())
    await turn()
    assert process.numbers == [1]
    assert process.said[-1] == (Kind.CALL_ERROR, (1, "CANCELLED", "request was cancelled"))


@pytest.mark.contract("PY-15")
async def test_call_in_a_queue_that_is_stopped_ends_with_the_error() -> None:
    process = CallingProcess()
    process.call("a", "many", decoupled=True)
    process.tell(Kind.CALL_STOP, 1)
    process.tell(Kind.CALL_STOP, 1)
    await turn()
    assert process.services.closed == ["a"]
    assert process.said == [(Kind.CALL_ERROR, (1, "CANCELLED", "request was cancelled"))]


async def test_end_of_the_process_cancels_everything() -> None:
    process = CallingProcess()
    process.call("a")
    process.call("bb")
    process.tell(Kind.CONTROL, (7, "wait", []))
    await turn()
    process.calls.close()
    process.services.gate.set()
    await turn()
    assert sorted(process.services.closed) == ["a", "bb"]
    assert process.heard(Kind.CONTROLLED) == []


async def test_metrics_belong_to_one_process_until_its_end() -> None:
    """Another process of the same instance is another owner."""
    processes = CallingProcess(pid=1), CallingProcess(pid=2)
    for process in processes:
        process.tell(Kind.METRIC, (0, "add", [1]))
        process.calls.close()
    owners = [process.services.owners for process in processes]
    assert owners == [process.services.over for process in processes]
    assert owners[0] != owners[1]


async def test_word_about_a_call_that_is_over_is_ignored() -> None:
    process = CallingProcess()
    process.tell(Kind.CALL_CANCEL, 9)
    process.tell(Kind.CALL_STOP, 9)
    process.tell(Kind.CALL_TAKEN, (9, 1))
    assert process.said == []
