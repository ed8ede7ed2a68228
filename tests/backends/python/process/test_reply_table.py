"""Replies by the numbers of their requests: cancellation, credit, rescheduling."""

from __future__ import annotations

import asyncio

import pytest

from backends.python.linked import Linked
from penstock.core.flow_control import Window
from penstock.core.request import InferenceRequest
from penstock.hosting.link.messages import Kind
from penstock_backends.python.pb_utils.responses import InferenceResponse
from penstock_backends.python.process.replies import PendingReply, ReplyPolicy

POLICY = ReplyPolicy(decoupled=True, window=Window(1))
ALL_REQUESTS = ReplyPolicy(sequences=True, iterative=True)


def accept(linked: Linked, policy: ReplyPolicy = POLICY) -> list[PendingReply]:
    """Accept a batch of one request, number 1."""
    (_, packed), payload = linked.batch(40, InferenceRequest("m"))
    return [reply for reply, _ in linked.replies.accept(packed, payload, policy)]


def test_cancellation_reaches_the_reply(linked: Linked) -> None:
    (reply,) = accept(linked)
    linked.receive(Kind.CANCEL, (1, 0))
    assert reply.cancelled


def test_request_that_was_cancelled_before_it_arrived_is_left_out(linked: Linked) -> None:
    linked.receive(Kind.CANCEL, (1, 0))
    assert accept(linked) == []


def test_model_of_sequences_gets_cancelled_requests(linked: Linked) -> None:
    linked.receive(Kind.CANCEL, (1, 0))
    (reply,) = accept(linked, ALL_REQUESTS)
    assert reply.cancelled


def test_rescheduled_request_keeps_its_reply(linked: Linked) -> None:
    (first,) = accept(linked, ALL_REQUESTS)
    (second,) = accept(linked, ALL_REQUESTS)
    assert first is second


def test_rescheduled_request_that_was_cancelled_meanwhile_stays_cancelled(linked: Linked) -> None:
    accept(linked, ALL_REQUESTS)
    linked.receive(Kind.CANCEL, (1, 0))
    (again,) = accept(linked, ALL_REQUESTS)
    assert again.cancelled


@pytest.mark.contract("PY-15")
def test_model_that_is_told_to_stop_still_answers(linked: Linked) -> None:
    (reply,) = accept(linked)
    linked.receive(Kind.STOP, 1)
    assert reply.is_cancelled()
    reply.send(InferenceResponse([]), final=True)
    assert [kind for kind, *_ in linked.sent()] == [Kind.RESPONSE]


@pytest.mark.contract("PY-15")
def test_request_that_was_stopped_before_it_arrived_ends_with_the_error(linked: Linked) -> None:
    linked.receive(Kind.STOP, 1)
    assert accept(linked) == []
    ((kind, header, _),) = linked.sent()
    assert (kind, header) == (Kind.ERROR, (1, "CANCELLED", "request was cancelled"))


def test_model_of_sequences_gets_stopped_requests(linked: Linked) -> None:
    linked.receive(Kind.STOP, 1)
    (reply,) = accept(linked, ALL_REQUESTS)
    assert reply.is_cancelled()
    assert accept(linked, ALL_REQUESTS) == [reply]
    assert linked.sent() == []


def test_stop_of_a_finished_request_is_ignored(linked: Linked) -> None:
    (reply,) = accept(linked)
    reply.send(InferenceResponse([]), final=True)
    linked.receive(Kind.STOP, 1)
    assert not reply.is_cancelled()


async def test_credit_reaches_the_reply(linked: Linked) -> None:
    (reply,) = accept(linked)
    reply.send(InferenceResponse([]), final=False)
    linked.receive(Kind.TAKEN, [(1, 1)])
    async with asyncio.timeout(20):
        await reply.wait_for_room()
