"""Requests in flight: rescheduled, cancelled, wanted no more, and packed."""

from __future__ import annotations

import time
from typing import cast

import pytest

from fakes import make_inference, mark, turns
from hosting.parent.in_flight.peer import (
    NOTHING,
    Peer,
    answer,
    attach,
    batch,
    done_before,
    in_flight,
    nothing,
)
from penstock.core.errors import InternalError, RequestCancelledError, UnavailableError
from penstock.core.flow_control import Window
from penstock.core.request import InferenceRequest
from penstock.hosting.link.messages import Kind
from penstock.hosting.parent.in_flight import InFlight
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics


@pytest.mark.contract("PY-28")
async def test_a_rescheduled_request_keeps_its_number() -> None:
    peer = Peer()
    some, inference = in_flight(peer), make_inference()
    some.send([inference], nothing)
    some.on_reschedule(1, NOTHING)
    assert inference.rescheduled
    some.send([inference], nothing)
    some.send([make_inference()], nothing)
    assert peer.numbers == [1, 1, 2]
    answer(some, 1, final=True)
    assert inference.abandoned


async def test_cancellation_of_a_rescheduled_request_is_sent() -> None:
    peer = Peer()
    some, inference = in_flight(peer), make_inference()
    some.send([inference], nothing)
    some.on_reschedule(1, NOTHING)
    before = time.monotonic_ns()
    inference.stream.close()
    await turns()
    ((kind, (number, left)),) = peer.messages[1:]
    assert (kind, number) == (Kind.CANCEL, 1)
    assert before <= left <= time.monotonic_ns()
    answer(some, 1, final=True)


@pytest.mark.contract("PY-15")
@pytest.mark.parametrize("again", [False, True])
async def test_model_is_told_that_no_more_is_wanted_and_goes_on(again: bool) -> None:
    """Also where the request has been rescheduled meanwhile."""
    peer = Peer()
    some, inference = in_flight(peer), make_inference()
    some.send([inference], nothing)
    if again:
        some.on_reschedule(1, NOTHING)
    inference.stream.stop()
    assert peer.messages[1:] == [(Kind.STOP, 1)]
    answer(some, 1, final=False)
    some.on_error((1, "CANCELLED", "told"), NOTHING)
    assert mark(await anext(inference.stream)) == 1
    with pytest.raises(RequestCancelledError, match="told"):
        await anext(inference.stream)


@pytest.mark.contract("PY-15")
async def test_request_ahead_of_its_turn_ends_when_no_more_is_wanted() -> None:
    peer = Peer()
    some, begun, ahead = in_flight(peer, ahead=4), make_inference(), make_inference()
    done_before(some)
    some.send([begun], nothing)
    some.send([ahead], nothing)
    ahead.stream.stop()
    assert isinstance(ahead.stream.error, RequestCancelledError)
    kind, (number, _) = peer.messages[-1]
    assert (kind, number) == (Kind.CANCEL, peer.numbers[-1])
    assert not begun.abandoned


async def test_request_kept_for_the_next_process_ends_when_no_more_is_wanted() -> None:
    some, kept = in_flight(ahead=4), make_inference()
    done_before(some)
    some.send([make_inference()], nothing)
    some.send([kept], nothing)
    some.lose(UnavailableError("gone"))
    assert not kept.abandoned
    kept.stream.stop()
    assert isinstance(kept.stream.error, RequestCancelledError)


async def test_a_cancelled_request_is_not_rescheduled() -> None:
    some, inference = in_flight(), make_inference()
    some.send([inference], nothing)
    inference.stream.close()
    some.on_reschedule(1, NOTHING)
    assert not inference.rescheduled


async def test_a_rescheduled_request_fails_with_the_process() -> None:
    peer = Peer()
    some, inference = in_flight(peer), make_inference()
    some.send([inference], nothing)
    some.on_reschedule(1, NOTHING)
    some.lose(UnavailableError("killed"))
    assert inference.stream.error is not None


async def test_a_batch_that_cannot_be_packed_leaves_nothing_in_flight() -> None:
    some, peer = in_flight(), Peer()
    attach(some, peer)
    unfit = Inference(InferenceRequest("m", parameters={"p": cast(str, object())}), 1, Statistics())
    with pytest.raises(InternalError, match="parameter 'p' must be"):
        some.send([*batch(), unfit], nothing)
    assert list(some.requests) == []
    assert not some.executing
    assert peer.messages == []


async def test_as_many_responses_may_be_unread_as_the_window_of_the_model_holds() -> None:
    some = InFlight(serial=True, ahead=1, limit=None, window=Window(responses=5000))
    attach(some, Peer())
    inference = make_inference()
    some.send([inference], nothing)
    for _ in range(5000):
        answer(some, 1, final=False)
    assert inference.stream.backlog == 5000
