"""Requests that a model receives, and its calls of other models."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from backends.python.scripted import FakeCall, FakeReply, FakeRuntime
from fakes import turns
from penstock.core.request import InferenceRequest as CoreRequest
from penstock.core.tensor import Tensor as CoreTensor
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.request import InferenceRequest
from penstock_backends.python.pb_utils.responses import (
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    TRITONSERVER_RESPONSE_COMPLETE_FINAL,
    InferenceResponse,
    TritonError,
)
from penstock_backends.python.pb_utils.tensor import Tensor

X = Tensor("X", np.arange(2, dtype=np.int32))


def received(reply: FakeReply | None = None, **fields: Any) -> InferenceRequest:
    core = CoreRequest("m", "3", inputs={"X": CoreTensor.from_strings(["a"])}, **fields)
    return InferenceRequest.received(core, reply or FakeReply("A", "B"))


def asking(**fields: Any) -> InferenceRequest:
    given: dict[str, Any] = {"requested_output_names": ["Y"], "inputs": [X], **fields}
    return InferenceRequest(model_name="other", **given)


def response(value: int) -> InferenceResponse:
    return InferenceResponse([Tensor("Y", np.array([value]))])


def value(response: InferenceResponse) -> int:
    return int(response.output_tensors()[0].as_numpy()[0])


# -- received ------------------------------------------------------------------------------------


@pytest.mark.contract("PY-11")
def test_request_has_the_fields_that_the_client_sent() -> None:
    request = received(id="r", correlation_id="c", timeout=5, priority=2)
    assert (request.model_name(), request.model_version()) == ("m", 3)
    assert (request.request_id(), request.correlation_id()) == ("r", "c")
    assert (request.timeout(), request.priority()) == (5, 2)
    assert [tensor.name() for tensor in request.inputs()] == ["X"]


def test_request_knows_whether_it_may_be_answered_at_any_time() -> None:
    request = received()
    assert not request.has_sender
    request.get_response_sender()
    assert request.has_sender


@pytest.mark.contract("PY-11")
def test_parameters_are_json() -> None:
    assert received(parameters={"a": 1, "b": "é"}).parameters() == '{"a":1,"b":"é"}'


@pytest.mark.contract("PY-11")
def test_all_outputs_are_requested_where_none_is_named() -> None:
    assert received().requested_output_names() == {"A", "B"}
    assert received(requested_outputs=("A",)).requested_output_names() == {"A"}


@pytest.mark.contract("PY-31", "GP-02")
def test_flags_mark_start_and_end_of_a_sequence() -> None:
    begin, end = TRITONSERVER_REQUEST_FLAG_SEQUENCE_START, TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
    assert received().flags() == 0
    assert received(sequence_start=True, sequence_end=True).flags() == begin | end


@pytest.mark.contract("PY-29")
def test_client_may_have_left() -> None:
    reply = FakeReply()
    request = received(reply)
    assert not request.is_cancelled()
    reply.cancelled = True
    assert request.is_cancelled()


def test_sender_answers_the_request() -> None:
    reply = FakeReply(decoupled=True)
    sender = received(reply).get_response_sender()
    sender.send(response(1))
    sender.send(flags=TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    assert (reply.sent, reply.closed) == (1, True)


def test_a_request_is_rescheduled_until_it_is_released() -> None:
    request = received(FakeReply(iterative=True))
    request.set_release_flags(TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
    assert request.rescheduled
    request.set_release_flags(TRITONSERVER_REQUEST_RELEASE_ALL)
    assert not request.rescheduled


def test_only_requests_of_iterative_sequences_come_again() -> None:
    with pytest.raises(TritonModelException, match="needs iterative sequences"):
        received().set_release_flags(TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)


def test_unknown_release_flags_are_refused() -> None:
    with pytest.raises(TritonModelException, match="unknown request release flags 5"):
        received().set_release_flags(5)


# -- made by a model -----------------------------------------------------------------------------


@pytest.mark.contract("PY-12")
def test_order_of_arguments_is_that_of_triton(process: FakeRuntime) -> None:
    process.next_call = FakeCall(response(1))
    InferenceRequest("r", 7, [X], ["Y"], "other", 2, 1, 9).exec()
    ((core, _),) = process.calls
    assert (core.id, core.correlation_id, core.model_name, core.model_version) == (
        "r",
        7,
        "other",
        "2",
    )
    assert (core.requested_outputs, core.timeout, core.sequence_start) == (("Y",), 9, True)


@pytest.mark.contract("PY-13")
def test_exec_gives_the_response(process: FakeRuntime) -> None:
    process.next_call = FakeCall(response(5))
    answer = asking(parameters={"a": 1}).exec()
    assert isinstance(answer, InferenceResponse)
    assert value(answer) == 5
    ((core, decoupled),) = process.calls
    assert (core.inputs["X"], core.parameters, decoupled) == (X.core, {"a": 1}, False)


def test_failure_is_in_the_response(process: FakeRuntime) -> None:
    failed = InferenceResponse(error=TritonError("boom", TritonError.UNAVAILABLE))
    process.next_call = FakeCall(failed)
    answer = asking().exec()
    assert isinstance(answer, InferenceResponse)
    assert answer.has_error()


def test_end_without_a_response_is_a_failure(process: FakeRuntime) -> None:
    answer = asking().exec()
    assert isinstance(answer, InferenceResponse)
    error = answer.error()
    assert error is not None
    assert error.message() == "the called model ended without a response"


@pytest.mark.contract("PY-13", "PY-15")
def test_decoupled_exec_gives_the_responses_in_turn(process: FakeRuntime) -> None:
    process.next_call = FakeCall(response(1), response(2))
    answers = asking().exec(decoupled=True)
    assert not isinstance(answers, InferenceResponse)
    assert [value(answer) for answer in answers] == [1, 2]
    assert process.calls[0][1] is True


@pytest.mark.contract("PY-15")
def test_final_flag_sent_alone_is_a_response_without_outputs(process: FakeRuntime) -> None:
    process.next_call = FakeCall(response(1), bare_end=True)
    answers: Any = asking().exec(decoupled=True)
    assert [len(answer.output_tensors()) for answer in answers] == [1, 0]
    assert list(answers) == []


@pytest.mark.contract("PY-15")
async def test_async_iterator_ends_with_the_final_flag(process: FakeRuntime) -> None:
    process.next_call = FakeCall(response(1), bare_end=True)
    answers: Any = await asking().async_exec(decoupled=True)
    assert [len(answer.output_tensors()) async for answer in answers] == [1, 0]


@pytest.mark.contract("PY-15")
def test_iterator_can_be_cancelled(process: FakeRuntime) -> None:
    answers: Any = asking().exec(decoupled=True)
    answers.cancel()
    assert process.next_call.cancelled


@pytest.mark.contract("PY-13")
async def test_async_exec_gives_the_response(process: FakeRuntime) -> None:
    process.next_call = FakeCall(response(5))
    answer = await asking().async_exec()
    assert isinstance(answer, InferenceResponse)
    assert value(answer) == 5


@pytest.mark.contract("PY-15")
async def test_async_exec_of_a_stream_waits_for_its_first_response(process: FakeRuntime) -> None:
    process.next_call = FakeCall(response(1), response(2))
    process.next_call.gate.clear()
    answers: Any = asking().async_exec(decoupled=True)
    await turns()
    assert not answers.done()
    assert process.on_loop == [True]
    process.next_call.gate.set()
    assert [value(answer) for answer in await answers] == [1, 2]


@pytest.mark.contract("PY-15")
async def test_stream_that_is_given_up_before_its_first_response_is_discarded(
    process: FakeRuntime,
) -> None:
    process.next_call.gate.clear()
    answers: Any = asking().async_exec(decoupled=True)
    await turns()
    answers.cancel()
    await asyncio.wait([answers])
    assert process.next_call.discarded


@pytest.mark.contract("PY-13")
async def test_async_exec_begins_before_it_is_awaited(process: FakeRuntime) -> None:
    """So that several are in flight, and `asyncio.wait` takes them."""
    process.next_call = FakeCall(response(5))
    answer: Any = asking().async_exec()
    assert len(process.calls) == 1
    ((done,), _) = await asyncio.wait([answer])
    assert value(done.result()) == 5


async def test_call_under_way_is_held_by_the_process_that_makes_it(process: FakeRuntime) -> None:
    """The loop keeps no reference to it, and the model may have dropped its own."""
    answer: Any = asking().async_exec()
    assert process.kept == [answer]
    await answer


async def test_cancelled_future_cancels_its_call(process: FakeRuntime) -> None:
    answer: Any = asking().async_exec()
    await asyncio.sleep(0)
    answer.cancel()
    await asyncio.wait([answer])
    assert process.next_call.discarded


def test_async_exec_needs_an_event_loop(process: FakeRuntime) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        asking().async_exec()
    assert process.calls == []


async def test_async_responses_come_by_either_loop(process: FakeRuntime) -> None:
    """Triton's documents use a plain `for` over the iterator of `async_exec`."""
    process.next_call = FakeCall(response(1), response(2), response(3))
    answers: Any = await asking().async_exec(decoupled=True)
    first = await anext(answers)
    assert [value(first), *(value(answer) for answer in answers)] == [1, 2, 3]
    assert [answer async for answer in answers] == []


@pytest.mark.contract("PY-31")
def test_flags_may_be_set_later(process: FakeRuntime) -> None:
    process.next_call = FakeCall(response(1))
    request = asking(correlation_id=4)
    request.set_flags(TRITONSERVER_REQUEST_FLAG_SEQUENCE_END)
    request.exec()
    core = process.calls[0][0]
    assert (core.sequence_start, core.sequence_end, core.correlation_id) == (False, True, 4)


def test_own_request_has_no_sender() -> None:
    with pytest.raises(TritonModelException, match="has no sender"):
        asking().get_response_sender()


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="expected a Tensor in inputs"):
        asking(inputs=["x"])
    with pytest.raises(TritonModelException, match="bool/int/float/str, found type <class 'list'>"):
        asking(parameters={"a": [1]})
    with pytest.raises(TritonModelException, match="model name 'other' should not be empty"):
        asking(inputs=[None])
    with pytest.raises(TritonModelException, match="Correlation ID must be integer or string"):
        asking(correlation_id=b"x")
