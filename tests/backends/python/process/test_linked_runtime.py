"""Calls of other models over the link: what the server is sent for them."""

from __future__ import annotations

import asyncio

import pytest

from backends.python.linked import Linked
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.hosting.link.blocking import LinkClosedError
from penstock.hosting.link.messages import Kind, pack_response
from penstock_backends.python.pb_utils import runtime
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.response_iterators import iterator_future
from penstock_backends.python.process.bls_call import BlsCall

REQUEST = InferenceRequest("other")


def call(linked: Linked) -> BlsCall:
    """A call of a decoupled model, number 1."""
    return linked.runtime.call(REQUEST, decoupled=True)


def sent(linked: Linked) -> list[int]:
    """Kinds of the messages that the server has received."""
    return [kind for kind, *_ in linked.sent()]


def test_call_that_is_discarded_is_cancelled_in_the_server(linked: Linked) -> None:
    discarded = call(linked)
    discarded.discard()
    assert sent(linked) == [Kind.CALL, Kind.CALL_CANCEL]
    assert discarded.next() is None


@pytest.mark.contract("PY-15")
def test_call_that_is_cancelled_is_read_to_its_end(linked: Linked) -> None:
    """The called model is told once, and its error is the last that comes."""
    cancelled = call(linked)
    cancelled.cancel()
    cancelled.cancel()
    assert sent(linked) == [Kind.CALL, Kind.CALL_STOP]
    header, _ = pack_response(InferenceResponse(final=False))
    linked.receive(Kind.CALLED, (1, header))
    linked.receive(Kind.CALL_ERROR, (1, "CANCELLED", "told"))
    responses = [cancelled.next() for _ in range(3)]
    assert [response and response.has_error() for response in responses] == [False, True, None]


@pytest.mark.contract("PY-15")
def test_iterator_that_is_dropped_cancels_its_call_soon(linked: Linked) -> None:
    """Even if the thread that made it goes on without a word to the server."""
    call(linked)
    assert linked.next_kind() == Kind.CALL
    assert linked.next_kind() == Kind.CALL_CANCEL


@pytest.mark.contract("PY-15")
async def test_call_has_arrived_with_its_first_response(linked: Linked) -> None:
    calling = call(linked)
    waiting = asyncio.ensure_future(calling.arrived())
    await asyncio.sleep(0)
    assert not waiting.done()
    header, _ = pack_response(InferenceResponse(final=False))
    linked.tell(Kind.CALLED, (1, header))
    async with asyncio.timeout(20):
        await waiting
    assert await calling.next_async() is not None


async def test_several_coroutines_may_wait_for_one_call(linked: Linked) -> None:
    linked.link.read_on(asyncio.get_running_loop(), lambda: None)
    calling = call(linked)
    waiting = [asyncio.ensure_future(calling.next_async()) for _ in range(3)]
    await asyncio.sleep(0)
    header, _ = pack_response(InferenceResponse(final=False))
    linked.tell(Kind.CALLED, (1, header))
    linked.tell(Kind.CALL_END, 1)
    async with asyncio.timeout(20):
        responses = await asyncio.gather(*waiting)
    assert sorted(response is None for response in responses) == [False, True, True]


@pytest.mark.contract("PY-15")
@pytest.mark.usefixtures("process")
async def test_future_that_is_given_up_leaves_no_thread_waiting(linked: Linked) -> None:
    """The server confirms the cancellation, which ends the wait on a loop of the model's own."""
    runtime.install(linked.runtime)
    waiting = iterator_future(call(linked))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert sent(linked) == [Kind.CALL, Kind.CALL_CANCEL]
    linked.tell(Kind.CALL_END, 1)
    async with asyncio.timeout(20):
        await asyncio.get_running_loop().shutdown_default_executor()


async def test_server_that_leaves_ends_the_wait_for_a_call(linked: Linked) -> None:
    waiting = asyncio.ensure_future(call(linked).arrived())
    await asyncio.sleep(0)
    linked.hang_up()
    async with asyncio.timeout(20):
        with pytest.raises(LinkClosedError):
            await waiting


def test_call_that_the_model_drops_is_cancelled_with_the_next_report(linked: Linked) -> None:
    call(linked)
    linked.link.report_released()
    assert sent(linked) == [Kind.CALL, Kind.CALL_CANCEL]


def test_call_that_has_ended_is_not_cancelled(linked: Linked) -> None:
    ended = call(linked)
    linked.receive(Kind.CALL_END, 1)
    ended.cancel()
    ended.discard()
    del ended
    linked.link.report_released()
    assert sent(linked) == [Kind.CALL]


def test_taken_responses_return_credit(linked: Linked) -> None:
    streaming = call(linked)
    header, _ = pack_response(InferenceResponse(final=False))
    linked.receive(Kind.CALLED, (1, header))
    streaming.next()
    assert sent(linked) == [Kind.CALL, Kind.CALL_TAKEN]


async def test_responses_for_a_loop_return_credit_as_they_come(linked: Linked) -> None:
    """It may wait for other calls before it reads them, and the called model for the credit."""
    linked.link.read_on(asyncio.get_running_loop(), lambda: None)
    streaming = call(linked)
    waiting = asyncio.ensure_future(streaming.arrived())
    await asyncio.sleep(0)
    header, _ = pack_response(InferenceResponse(final=False))
    linked.receive(Kind.CALLED, (1, header))
    assert sent(linked) == [Kind.CALL, Kind.CALL_TAKEN]
    await waiting
    await streaming.next_async()
    assert sent(linked) == []


async def test_responses_that_come_before_a_loop_waits_return_credit_too(linked: Linked) -> None:
    """A loop that is slow to wait would have kept a window of them, and the called model waited."""
    linked.link.read_on(asyncio.get_running_loop(), lambda: None)
    request = InferenceRequest("other")
    streaming = linked.runtime.call(request, decoupled=True, on_loop=True)
    header, _ = pack_response(InferenceResponse(final=False))
    for _ in range(20):
        linked.receive(Kind.CALLED, (1, header))
    assert sent(linked) == [Kind.CALL, *[Kind.CALL_TAKEN] * 20]
    await streaming.arrived()


async def test_responses_that_a_loop_leaves_unread_have_a_bound(linked: Linked) -> None:
    linked.link.read_on(asyncio.get_running_loop(), lambda: None)
    streaming = call(linked)
    waiting = asyncio.ensure_future(streaming.arrived())
    await asyncio.sleep(0)
    assert sent(linked) == [Kind.CALL]
    header, _ = pack_response(InferenceResponse(final=False))
    returned = 0
    for _ in range(1100):
        linked.receive(Kind.CALLED, (1, header))
        returned += len(sent(linked))
    assert returned == 1024
    await waiting


def test_error_of_the_server_is_the_last_response(linked: Linked) -> None:
    failing = call(linked)
    linked.receive(Kind.CALL_ERROR, (1, "NOT_FOUND", "no such model"))
    response = failing.next()
    assert response is not None
    assert str(response.error()) == "no such model"
    assert failing.next() is None


def test_model_calls_others_in_execute_only(linked: Linked) -> None:
    linked.runtime.executing = False
    with pytest.raises(TritonModelException, match="only supported during the 'execute' function"):
        call(linked)
