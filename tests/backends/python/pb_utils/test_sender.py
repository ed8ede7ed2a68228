"""Rules of a response sender."""

from __future__ import annotations

from typing import Any

import pytest

from backends.python.scripted import FakeReply
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.responses import (
    TRITONSERVER_RESPONSE_COMPLETE_FINAL,
    InferenceResponse,
)
from penstock_backends.python.pb_utils.sender import InferenceResponseSender

FINAL = TRITONSERVER_RESPONSE_COMPLETE_FINAL
RESPONSE = InferenceResponse([])


@pytest.mark.contract("PY-23", "DC-02")
def test_response_may_carry_the_final_flag() -> None:
    reply = FakeReply(decoupled=True)
    InferenceResponseSender(reply).send(RESPONSE, flags=FINAL)
    assert (reply.sent, reply.closed) == (1, True)


@pytest.mark.contract("PY-24")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"flags": 7}, "Unable to send response. Unsupported flag provided."),
        (
            {},
            "Inference Response object must be provided when the response flags is set to zero.",
        ),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(TritonModelException) as error:
        InferenceResponseSender(FakeReply(decoupled=True)).send(**arguments)
    assert str(error.value) == text


@pytest.mark.contract("PY-24", "DC-07")
def test_nothing_is_sent_after_the_final_flag() -> None:
    sender = InferenceResponseSender(FakeReply(decoupled=True))
    sender.send(flags=FINAL)
    with pytest.raises(TritonModelException, match="Response sender has been closed"):
        sender.send(RESPONSE)


@pytest.mark.contract("PY-25")
def test_model_that_is_not_decoupled_answers_once() -> None:
    sender = InferenceResponseSender(FakeReply())
    sender.send(RESPONSE)
    with pytest.raises(TritonModelException, match="cannot send more than one response"):
        sender.send(RESPONSE)


def test_model_that_is_not_decoupled_must_answer() -> None:
    with pytest.raises(TritonModelException, match="before sending a response"):
        InferenceResponseSender(FakeReply()).send(flags=FINAL)


@pytest.mark.contract("PY-29")
def test_sender_knows_whether_the_client_has_left() -> None:
    reply = FakeReply()
    reply.cancelled = True
    assert InferenceResponseSender(reply).is_cancelled()
