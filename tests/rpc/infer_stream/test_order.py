"""Order and final flags of the responses in one `ModelStreamInfer` call."""

from __future__ import annotations

import pytest

from penstock.protocol import grpc_service_pb2 as pb
from rpc.infer_stream.talk import Talk
from rpc.manual import ask, finals, number, numbers, turns

# -- order -----------------------------------------------------------------------------------------


@pytest.mark.contract("DC-04")
@pytest.mark.contract("GP-16")
async def test_models_that_answer_once_answer_in_the_order_of_the_requests(talk: Talk) -> None:
    await talk.say(ask("once", "a"), ask("once2", "b"), ask("once", "c"))
    await talk.answer("c", number(3, final=True))
    await talk.answer("b", number(2, final=True))
    assert talk.responses == []
    await talk.answer("a", number(1, final=True))
    assert numbers(talk.responses) == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.contract("GP-16", "DC-01")
async def test_decoupled_models_answer_as_they_go(talk: Talk) -> None:
    await talk.say(ask("many", "a"), ask("many2", "b"))
    await talk.answer("b", number(1))
    await talk.answer("a", number(2))
    await talk.answer("b", number(3))
    assert numbers(talk.responses) == [("b", 1), ("a", 2), ("b", 3)]


async def test_decoupled_model_is_not_held_back_by_others(talk: Talk) -> None:
    await talk.say(ask("once", "slow"), ask("many", "fast"))
    await talk.answer("fast", number(1))
    assert numbers(talk.responses) == [("fast", 1)]


@pytest.mark.contract("GP-17")
async def test_requests_are_admitted_in_their_order_without_waiting_for_answers(
    talk: Talk,
) -> None:
    await talk.say(*(ask("once", str(index)) for index in range(20)))
    assert [request.id for request in talk.server.requests] == [str(n) for n in range(20)]


async def test_refusal_waits_for_the_answers_before_it(talk: Talk) -> None:
    await talk.say(ask("once", "good"), ask("nope", "bad"))
    assert talk.responses == []
    await talk.answer("good", number(1, final=True))
    assert [response.infer_response.id for response in talk.responses] == ["good", "bad"]


async def test_answer_after_a_refusal_is_not_held_up_by_it(talk: Talk) -> None:
    await talk.say(ask("nope", "bad"), ask("once", "good"))
    await talk.answer("good", number(1, final=True))
    assert [response.infer_response.id for response in talk.responses] == ["bad", "good"]


# -- final flags -----------------------------------------------------------------------------------


@pytest.mark.contract("GP-06", "DC-02")
@pytest.mark.parametrize("empty_final", [False, True])
async def test_final_flag_is_on_the_last_response_if_sent_with_it(
    talk: Talk, empty_final: bool
) -> None:
    await talk.say(ask("many", "x", empty_final=empty_final))
    await talk.answer("x", number(1), number(2, final=True))
    assert numbers(talk.responses) == [("x", 1), ("x", 2)]
    assert finals(talk.responses) == [False, True]


@pytest.mark.contract("GP-05", "DC-02")
async def test_empty_final_response_is_sent_only_on_request(talk: Talk) -> None:
    await talk.say(ask("many", "plain"), ask("many", "curious", empty_final=True))
    await talk.answer("plain", number(1))
    await talk.answer("curious", number(2))
    talk.server.streams["plain"].end()
    talk.server.streams["curious"].end()
    await turns()
    assert numbers(talk.responses[:2]) == [("plain", 1), ("curious", 2)]
    assert finals(talk.responses) == [False, False, True]


@pytest.mark.contract("GP-05")
async def test_empty_final_message_holds_only_model_and_id(talk: Talk) -> None:
    await talk.say(ask("many", "x", empty_final=True))
    talk.server.streams["x"].end()
    await turns()
    reply = pb.ModelInferResponse(model_name="many", id="x")
    reply.parameters["triton_final_response"].bool_param = True
    assert talk.responses == [pb.ModelStreamInferResponse(infer_response=reply)]


async def test_answered_request_is_not_reported_as_left(talk: Talk) -> None:
    await talk.say(ask("once", "a"), ask("many", "b"))
    await talk.answer("a", number(1, final=True))
    talk.server.streams["b"].end()
    await talk.end()
    assert talk.server.closed == []
