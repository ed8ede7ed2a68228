"""Errors amid one `ModelStreamInfer` call, and those that end it."""

from __future__ import annotations

import asyncio

import pytest

from penstock.core.errors import ExhaustedError, InternalError, NotFoundError
from penstock.core.request import InferenceResponse
from penstock.protocol import grpc_service_pb2 as pb
from rpc.infer_stream.talk import Talk
from rpc.manual import PATIENCE, ask, finals, number, numbers, turns

# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.contract("GP-18")
@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (ask("nope", "x"), "Request for unknown model: 'nope' is not found"),
        (ask("strict", "x"), "not like this"),
    ],
)
async def test_refused_request_is_answered_with_its_id_and_nothing_more(
    talk: Talk, request_: pb.ModelInferRequest, text: str
) -> None:
    await talk.say(request_)
    refusal = pb.ModelStreamInferResponse(error_message=text)
    refusal.infer_response.id = "x"
    assert talk.responses == [refusal]


async def test_refusal_of_a_request_without_an_id_holds_an_empty_response(talk: Talk) -> None:
    await talk.say(ask("nope", ""))
    assert talk.responses[0].HasField("infer_response")


async def test_malformed_request_is_refused_in_band(talk: Talk) -> None:
    request = ask("once", "x")
    request.parameters["priority"].string_param = "high"
    await talk.say(request)
    assert talk.responses[0].error_message.startswith("invalid value type for 'priority'")
    assert talk.responses[0].infer_response == pb.ModelInferResponse(id="x")


async def test_unknown_model_is_reported_before_other_errors(talk: Talk) -> None:
    """As for unary requests: the inputs of an unknown model cannot be checked."""
    request = ask("nope", "x")
    request.parameters["priority"].string_param = "high"
    await talk.say(request)
    assert talk.responses[0].error_message.startswith("Request for unknown model")


@pytest.mark.contract("GP-18")
async def test_error_of_a_model_names_the_model_and_is_final(talk: Talk) -> None:
    await talk.say(ask("once", "x"))
    talk.server.streams["x"].fail(NotFoundError("not found by model"))
    await turns()
    (response,) = talk.responses
    assert response.error_message == "not found by model"
    assert (response.infer_response.model_name, response.infer_response.id) == ("once", "x")
    assert response.infer_response.model_version == ""
    assert finals(talk.responses) == [True]


@pytest.mark.contract("DC-08")
async def test_error_amid_responses_need_not_be_final(talk: Talk) -> None:
    await talk.say(ask("many", "x"))
    await talk.answer("x", InferenceResponse(error=InternalError("first error")), number(2))
    assert [response.error_message for response in talk.responses] == ["first error", ""]
    assert finals(talk.responses) == [False, False]


async def test_error_that_is_the_last_response_is_final(talk: Talk) -> None:
    await talk.say(ask("many", "x", empty_final=True))
    error = InferenceResponse(error=InternalError("mid stream error"), final=True)
    await talk.answer("x", number(1), error)
    assert finals(talk.responses) == [False, True]
    assert len(talk.responses) == 2


@pytest.mark.contract("GP-18")
async def test_stream_lives_on_after_errors(talk: Talk) -> None:
    await talk.say(ask("nope", "a"), ask("once", "b"))
    talk.server.streams["b"].fail(InternalError("broken"))
    await talk.say(ask("once", "c"))
    await talk.answer("c", number(1, final=True))
    await talk.end()
    assert [r.error_message for r in talk.responses][1:] == ["broken", ""]


async def test_response_that_cannot_be_encoded_is_an_error_of_its_request_alone(
    talk: Talk,
) -> None:
    unfit = InferenceResponse(parameters={"p": [1]})  # type: ignore[dict-item]
    await talk.say(ask("many", "bad"), ask("many", "good"))
    await talk.answer("bad", unfit)
    await talk.answer("good", number(1))
    assert "response parameter 'p'" in talk.responses[0].error_message
    assert numbers(talk.responses[1:]) == [("good", 1)]
    assert talk.server.closed == ["bad"]


async def test_refusals_for_want_of_room_tell_once_when_to_try_again(talk: Talk) -> None:
    await talk.say(ask("full", "a"), ask("full", "b"), ask("nope", "c"))
    assert [response.error_message for response in talk.responses][:2] == ["no room", "no room"]
    assert talk.call.trailing == [("retry-after", "7")]


# -- errors as the status of the call --------------------------------------------------------------


@pytest.mark.contract("GP-19")
async def test_first_error_ends_the_call_and_cancels_the_other_requests(strict_talk: Talk) -> None:
    talk = strict_talk
    await talk.say(ask("many", "other"), ask("many", "bad"))
    await talk.answer("bad", number(1), InferenceResponse(error=NotFoundError("not there")))
    with pytest.raises(NotFoundError, match=r"^not there$"):
        await asyncio.wait_for(talk.task, PATIENCE)
    assert numbers(talk.responses) == [("bad", 1)]
    assert sorted(talk.server.closed) == ["bad", "other"]


@pytest.mark.contract("GP-19")
async def test_failure_of_a_request_ends_the_call(strict_talk: Talk) -> None:
    await strict_talk.say(ask("once", "bad"), ask("once", "good"))
    strict_talk.server.streams["bad"].fail(InternalError("broken"))
    with pytest.raises(InternalError, match=r"^broken$"):
        await asyncio.wait_for(strict_talk.task, PATIENCE)
    assert strict_talk.server.closed == ["good"]


@pytest.mark.contract("GP-19")
@pytest.mark.parametrize("in_response", [False, True])
async def test_error_behind_a_request_that_goes_on_ends_the_call_at_once(
    strict_talk: Talk, in_response: bool
) -> None:
    """As on the real server: it does not wait for its turn."""
    talk = strict_talk
    await talk.say(ask("once", "slow"), ask("once", "bad"))
    if in_response:
        error = InferenceResponse(error=InternalError("broken"), final=True)
        await talk.answer("bad", error)
    else:
        talk.server.streams["bad"].fail(InternalError("broken"))
    with pytest.raises(InternalError, match=r"^broken$"):
        await asyncio.wait_for(talk.task, PATIENCE)
    assert talk.server.closed == ["slow"]
    assert talk.responses == []


async def test_nothing_is_sent_after_the_error_that_ends_the_call(strict_talk: Talk) -> None:
    talk = strict_talk
    await talk.say(ask("many", "bad"))
    error = InferenceResponse(error=NotFoundError("not there"))
    await talk.answer("bad", error, number(1), number(2, final=True))
    with pytest.raises(NotFoundError, match=r"^not there$"):
        await asyncio.wait_for(talk.task, PATIENCE)
    assert talk.responses == []


@pytest.mark.contract("GP-19")
@pytest.mark.parametrize("refused", [ask("nope", "bad"), ask("strict", "bad")])
async def test_refusal_before_admission_stays_in_the_stream(
    strict_talk: Talk, refused: pb.ModelInferRequest
) -> None:
    """Only errors of admitted requests end the call, as on the real server."""
    talk = strict_talk
    await talk.say(ask("many", "other"), refused, ask("once", "good"))
    await talk.answer("good", number(1, final=True))
    await talk.answer("other", number(2, final=True))
    await talk.end()
    assert talk.responses[0].error_message
    assert numbers(talk.responses[1:]) == [("good", 1), ("other", 2)]


async def test_error_text_with_half_a_surrogate_pair_is_sent(talk: Talk) -> None:
    await talk.say(ask("once", "bad"))
    talk.server.streams["bad"].fail(InternalError("\ud800!"))
    await turns()
    assert talk.responses[0].error_message == "?!"


async def test_refusal_for_want_of_room_ends_a_call_that_wants_a_status(strict_talk: Talk) -> None:
    await strict_talk.say(ask("full", "a"))
    with pytest.raises(ExhaustedError, match=r"^no room$"):
        await asyncio.wait_for(strict_talk.task, PATIENCE)
    assert strict_talk.responses == []
