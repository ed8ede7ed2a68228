"""Calls of other models over the link: what the server is sent for them."""

from __future__ import annotations

import pytest

from backends.python.linked import Linked
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.hosting.link.messages import Kind, pack_response
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.process.bls_call import BlsCall

REQUEST = InferenceRequest("other")


def call(linked: Linked) -> BlsCall:
    """A call of a decoupled model, number 1."""
    return linked.runtime.call(REQUEST, decoupled=True)


def sent(linked: Linked) -> list[int]:
    """Kinds of the messages that the server has received."""
    return [kind for kind, *_ in linked.sent()]


def test_call_that_is_cancelled_is_cancelled_in_the_server(linked: Linked) -> None:
    call(linked).cancel()
    assert sent(linked) == [Kind.CALL, Kind.CALL_CANCEL]


def test_call_that_the_model_drops_is_cancelled_with_the_next_report(linked: Linked) -> None:
    call(linked)
    linked.link.report_released()
    assert sent(linked) == [Kind.CALL, Kind.CALL_CANCEL]


def test_call_that_has_ended_is_not_cancelled(linked: Linked) -> None:
    ended = call(linked)
    linked.receive(Kind.CALL_END, 1)
    ended.cancel()
    del ended
    linked.link.report_released()
    assert sent(linked) == [Kind.CALL]


def test_taken_responses_return_credit(linked: Linked) -> None:
    streaming = call(linked)
    header, _ = pack_response(InferenceResponse(final=False))
    linked.receive(Kind.CALLED, (1, header))
    streaming.next()
    assert sent(linked) == [Kind.CALL, Kind.CALL_TAKEN]


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
