"""Results and exceptions of `execute`, and the messages to the server that follow."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from backends.python.linked import Linked, answers, messages
from penstock.core.request import InferenceRequest as CoreRequest
from penstock.core.tensor import Tensor as CoreTensor
from penstock.hosting.link.link import LARGEST_HEAD
from penstock.hosting.link.messages import Kind
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.responses import (
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    TRITONSERVER_RESPONSE_COMPLETE_FINAL,
    InferenceResponse,
    TritonError,
)
from penstock_backends.python.pb_utils.tensor import Tensor
from penstock_backends.python.process.execution import Execution
from penstock_backends.python.process.replies import ReplyPolicy

POLICY = ReplyPolicy(outputs=("Y",))
BATCH = 40

Begin = Callable[..., Execution]


def request(*values: int, size: int = 1) -> CoreRequest:
    """A request of one row."""
    return CoreRequest("m", inputs={"X": CoreTensor.from_numpy(np.full(size, values, np.int32))})


def response(value: int) -> InferenceResponse:
    return InferenceResponse([Tensor("Y", np.array([value], np.int32))])


class Unspeakable(str):
    """Fails while the response is packed, as a copy of an output may for want of memory."""

    __slots__ = ()

    def __str__(self) -> str:
        raise ValueError("unspeakable")


@pytest.fixture
def begin(linked: Linked) -> Begin:
    def begin(*requests: CoreRequest, policy: ReplyPolicy = POLICY) -> Execution:
        message = linked.batch(BATCH, *requests)
        return Execution(linked.link, linked.replies, "m_0_0", policy, *message)

    return begin


def failures(execution: Execution) -> dict[int, str]:
    """The errors of requests, which follow the responses."""
    _, *others = messages(execution.finish())
    assert {kind for kind, *_ in others} <= {Kind.ERROR}
    assert {code for _, (_, code, _), _ in others} <= {"INTERNAL"}
    return {number: text for _, (number, _, text), _ in others}


@pytest.mark.contract("PY-04")
def test_responses_go_to_the_requests_by_their_place(begin: Begin) -> None:
    execution = begin(request(1), request(2))
    execution.collect([response(10), response(20)])
    (message,) = messages(execution.finish())
    told = answers(message)
    assert {n: int(r.outputs["Y"].numpy()[0]) for n, r in told.items()} == {1: 10, 2: 20}
    assert all(r.final for r in told.values())


def test_times_of_the_batch_come_with_its_answers(begin: Begin) -> None:
    execution = begin(request(1))
    execution.collect([response(1)])
    ((_, (number, begun, started, finished, waited, _), _),) = messages(execution.finish())
    assert number == BATCH
    assert begun <= started <= finished
    assert waited == 0


def test_done_header_has_the_number_of_the_batch(begin: Begin) -> None:
    number, begun, started, now, _ = begin(request(1)).done_header()
    assert number == BATCH
    assert begun <= started <= now


def test_model_gets_the_requests_with_their_inputs(begin: Begin) -> None:
    first, second = begin(request(1), request(2)).requests
    assert first.inputs()[0].as_numpy().tolist() == [1]
    assert second.inputs()[0].as_numpy().tolist() == [2]


def test_outputs_that_were_not_asked_for_stay_away(begin: Begin) -> None:
    execution = begin(request(1))
    other = Tensor("Z", np.array([1], np.int32))
    execution.collect([InferenceResponse([other, *response(1).output_tensors()])])
    (message,) = messages(execution.finish())
    assert list(answers(message)[1].outputs) == ["Y"]


@pytest.mark.contract("PY-20")
def test_response_may_be_an_error(begin: Begin) -> None:
    execution = begin(request(1), request(2))
    execution.collect([InferenceResponse(error=TritonError("not this one")), response(2)])
    (message,) = messages(execution.finish())
    refused, answered = answers(message)[1], answers(message)[2]
    assert refused.error is not None
    assert refused.error.message == "not this one"
    assert answered.error is None


@pytest.mark.contract("PY-09")
def test_exception_of_the_model_fails_every_request(begin: Begin) -> None:
    execution = begin(request(1), request(2))
    execution.fail(ValueError("no answer"))
    texts = failures(execution)
    assert texts[1] == texts[2]
    start = "Failed to process the request(s) for model 'm_0_0', message: ValueError: no answer"
    assert texts[1].startswith(start)


@pytest.mark.contract("PY-10")
@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ((), "Expected a list in the execute return, found type '<class 'tuple'>'."),
        ([], "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n"),
        ([None] * 2, "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:2\n"),
        ([7], "in the execute function return list, found type '<class 'int'>'."),
    ],
)
def test_anything_but_a_list_of_responses_is_refused(
    begin: Begin, returned: Any, text: str
) -> None:
    execution = begin(request(1))
    with pytest.raises(Exception, match=r"^Expected|^Number of") as refused:
        execution.collect(returned)
    execution.fail(refused.value)
    assert failures(execution)[1].endswith(text)


def test_decoupled_model_returns_nothing(begin: Begin) -> None:
    execution = begin(request(1), policy=ReplyPolicy(("Y",), decoupled=True))
    with pytest.raises(Exception, match="decoupled mode and the execute function must return None"):
        execution.collect([response(1)])
    begin(request(1), policy=ReplyPolicy(("Y",), decoupled=True)).collect(None)


@pytest.mark.contract("PY-04", "PY-25")
@pytest.mark.parametrize("returned", [None, [None, None]])
def test_requests_are_left_to_senders_that_were_taken(begin: Begin, returned: Any) -> None:
    execution = begin(request(1), request(2))
    senders = [request.get_response_sender() for request in execution.requests]
    execution.collect(returned)
    (message,) = messages(execution.finish())
    assert answers(message) == {}
    senders[1].send(response(2), TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    senders[0].send(response(1))
    senders[0].send(flags=TRITONSERVER_RESPONSE_COMPLETE_FINAL)


@pytest.mark.contract("PY-04", "PY-10")
@pytest.mark.parametrize(
    ("returned", "answered", "text"),
    [
        (None, [], "Expected a list in the execute return, found type '<class 'NoneType'>'."),
        (
            [None, None, response(3)],
            [3],
            "Expected an 'InferenceResponse' object in the execute function return list, found"
            " type '<class 'NoneType'>'.",
        ),
    ],
)
def test_nothing_is_an_error_for_requests_whose_sender_nobody_took(
    begin: Begin, linked: Linked, returned: Any, answered: list[int], text: str
) -> None:
    execution = begin(request(1), request(2), *[request(3)] * len(answered))
    sender = execution.requests[0].get_response_sender()
    execution.collect(returned)
    done, *others = messages(execution.finish())
    assert list(answers(done)) == answered
    ((_, (number, _, told), _),) = others
    assert (number, told.rpartition("message: ")[2]) == (2, text)
    assert [header[4] for kind, header, _ in linked.sent() if kind == Kind.LOG] == [told]
    sender.send(response(1), TRITONSERVER_RESPONSE_COMPLETE_FINAL)


@pytest.mark.contract("PY-25")
@pytest.mark.parametrize("flags", [0, TRITONSERVER_RESPONSE_COMPLETE_FINAL])
def test_response_besides_that_of_the_sender_fails_the_unanswered(begin: Begin, flags: int) -> None:
    execution = begin(request(1), request(2))
    sender = execution.requests[1].get_response_sender()
    sender.send(response(2), flags)
    with pytest.raises(Exception, match="cannot send more than one response") as refused:
        execution.collect([response(1), response(7)])
    execution.fail(refused.value)
    assert list(failures(execution)) == [1] if flags else [1, 2]


@pytest.mark.contract("PY-25")
def test_sender_is_closed_by_the_response_that_is_returned(begin: Begin) -> None:
    execution = begin(request(1))
    sender = execution.requests[0].get_response_sender()
    execution.collect([response(1)])
    with pytest.raises(TritonModelException, match="cannot send more than one response"):
        sender.send(response(2))
    (message,) = messages(execution.finish())
    assert list(answers(message)) == [1]
    with pytest.raises(TritonModelException, match="cannot send more than one response"):
        sender.send(response(2))


@pytest.mark.contract("PY-04")
def test_request_of_a_client_that_has_left_needs_no_answer(begin: Begin, linked: Linked) -> None:
    linked.receive(Kind.CANCEL, (1, 0))
    execution = begin(request(1), policy=ReplyPolicy(("Y",), sequences=True))
    execution.collect(None)
    assert [kind for kind, *_ in messages(execution.finish())] == [Kind.EXECUTED]
    assert linked.sent() == []


@pytest.mark.contract("PY-09")
@pytest.mark.parametrize("answered", [False, True])
def test_exception_is_in_the_log_once(begin: Begin, linked: Linked, answered: bool) -> None:
    """Also where all clients have their answers, and nobody else would be told of it."""
    execution = begin(request(1), request(2))
    for one in execution.requests if answered else ():
        one.get_response_sender().send(response(1), TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    linked.sent()
    try:
        raise ValueError("no answer")
    except ValueError as error:
        execution.fail(error)
    assert list(failures(execution)) == ([] if answered else [1, 2])
    ((kind, (level, _, file, line, text, _), _),) = linked.sent()
    assert (kind, level, file) == (Kind.LOG, logging.ERROR, __file__)
    assert text.startswith("Failed to process the request(s) for model 'm_0_0', message: Value")
    assert f"{__file__}({line}): test_exception_is_in_the_log_once" in text


@pytest.mark.parametrize("ids", [("a",), ("a", "b")])
def test_log_names_the_request_that_failed(
    begin: Begin, linked: Linked, ids: tuple[str, ...]
) -> None:
    """Of several in a batch none is named: the exception is about all of them."""
    begin(*[request(1)._replace(id=id) for id in ids]).fail(ValueError("no"))
    ((kind, header, _),) = linked.sent()
    assert kind == Kind.LOG
    assert header[-1].get("request_id") == ("a" if len(ids) == 1 else None)


def test_failure_leaves_those_alone_that_are_answered(begin: Begin) -> None:
    execution = begin(request(1), request(2))
    answered = execution.requests[0]
    answered.get_response_sender().send(response(1), TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    execution.fail(ValueError("the others"))
    assert list(failures(execution)) == [2]


def test_failures_can_be_sent_without_the_end_of_the_batch(begin: Begin) -> None:
    execution = begin(request(1))
    execution.fail(ValueError("late"))
    ((kind, (number, _, _), _),) = messages(execution.failures())
    assert (kind, number) == (Kind.ERROR, 1)


def test_response_that_cannot_travel_fails_with_those_behind_it(begin: Begin) -> None:
    execution = begin(request(1), request(2), request(3))
    unfit = InferenceResponse([])
    unfit.core_parameters["k"] = Unspeakable()
    execution.collect([response(1), unfit, response(3)])
    first, *_ = messages(parts := execution.finish())
    assert list(answers(first)) == [1]
    assert [header[0] for kind, header, _ in messages(parts)[1:]] == [2, 3]


def test_response_too_large_for_the_link_leaves_the_others_alone(begin: Begin) -> None:
    execution = begin(request(1), request(2), request(3))
    large = InferenceResponse([])
    large.core_parameters["k"] = "x" * (LARGEST_HEAD + 1)
    execution.collect([response(10), large, response(30)])
    executed, first, error, last = messages(execution.finish())
    assert answers(executed) == {}
    assert (error[0], error[1][0]) == (Kind.ERROR, 2)
    assert f"{LARGEST_HEAD} of them for these" in error[1][2]
    sent = {header[0]: bytes(payload) for kind, header, payload in (first, last)}
    assert sent == {1: bytes([10, 0, 0, 0]), 3: bytes([30, 0, 0, 0])}


@pytest.mark.contract("PY-28")
def test_rescheduled_request_is_reported_before_the_end_of_its_batch(begin: Begin) -> None:
    execution = begin(request(1), request(2), policy=ReplyPolicy(("Y",), iterative=True))
    execution.requests[0].set_release_flags(TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
    execution.collect([None, response(2)])
    (kind, number, _), done = messages(execution.finish())
    assert (kind, number) == (Kind.RESCHEDULE, 1)
    assert list(answers(done)) == [2]


@pytest.mark.contract("PY-28")
def test_rescheduled_request_must_have_no_response(begin: Begin) -> None:
    execution = begin(request(1), policy=ReplyPolicy(("Y",), iterative=True))
    execution.requests[0].set_release_flags(TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
    with pytest.raises(Exception, match="return list for reschduled request"):
        execution.collect([response(1)])


@pytest.mark.parametrize(("sequences", "seen"), [(False, [2]), (True, [1, 2])])
def test_cancelled_request_reaches_models_of_sequences_only(
    begin: Begin, linked: Linked, sequences: bool, seen: list[int]
) -> None:
    linked.receive(Kind.CANCEL, (1, 0))
    execution = begin(request(1), request(2), policy=ReplyPolicy(("Y",), sequences=sequences))
    values = [int(r.inputs()[0].as_numpy()[0]) for r in execution.requests]
    assert values == seen


def test_output_that_is_an_input_goes_back_in_its_memory(begin: Begin) -> None:
    execution = begin(request(1, size=1 << 14))
    execution.collect(
        [InferenceResponse([Tensor("Y", execution.requests[0].inputs()[0].as_numpy())])]
    )
    ((_, header, payload),) = messages(execution.finish())
    ((_, (((_, _, _, size, where),), *_)),) = header[-1]
    assert (size, len(where), len(payload)) == (1 << 16, 3, 0)


def test_large_output_lies_in_the_memory_that_the_server_reads(
    begin: Begin, linked: Linked
) -> None:
    execution = begin(request(1))
    execution.collect([InferenceResponse([Tensor("Y", np.ones(1 << 14, np.int32))])])
    ((_, _, payload),) = messages(execution.finish())
    assert linked.written
    assert len(payload) == 0
