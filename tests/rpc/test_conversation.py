"""One `ModelStreamInfer` call: order, errors, final flags, cancellation (contract area B)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from penstock.core.errors import (
    DeadlineExceededError,
    InternalError,
    NotFoundError,
    UnavailableError,
)
from penstock.core.request import InferenceResponse
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc import open_answers
from penstock.rpc.conversation import Conversation
from penstock.rpc.infer_message import InferMessage
from rpc.manual import (
    PATIENCE,
    Call,
    ManualServer,
    ask,
    finals,
    number,
    numbers,
    received,
    turns,
)


class Talk:
    """A conversation that is going on."""

    def __init__(self, *, at_once: bool, deadline: float | None = None, **metadata: str) -> None:
        self.server = ManualServer()
        self.call = Call()
        self.call.deadline = deadline
        self.call.writes_at_once = at_once
        self.call.metadata = metadata
        conversation = Conversation(self.server, self.call)
        self.task = asyncio.ensure_future(conversation.run(self.call.requests()))

    @property
    def responses(self) -> list[pb.ModelStreamInferResponse]:
        return self.call.responses

    async def say(self, *requests: pb.ModelInferRequest) -> None:
        """Send requests, and let the server see them."""
        self.call.send(*requests)
        await turns()

    async def answer(self, id: str, *responses: InferenceResponse) -> None:
        """Have a request answered, and let the responses be written."""
        for response in responses:
            self.server.streams[id].send(response)
        await turns()

    async def end(self) -> None:
        """No more requests; wait for the end of the call."""
        self.call.half_close()
        await asyncio.wait_for(self.task, PATIENCE)


@pytest.fixture(params=[False, True], ids=["by_task", "at_once"])
def at_once(request: pytest.FixtureRequest) -> bool:
    """Whether the transport takes messages without a task."""
    return bool(request.param)


@pytest_asyncio.fixture
async def talk(at_once: bool) -> AsyncIterator[Talk]:
    talk = Talk(at_once=at_once)
    yield talk
    talk.task.cancel()
    await asyncio.wait([talk.task])


@pytest_asyncio.fixture
async def strict_talk(at_once: bool) -> AsyncIterator[Talk]:
    """A conversation whose client wants the first error as the status of the call."""
    talk = Talk(at_once=at_once, triton_grpc_error="true")
    yield talk
    talk.task.cancel()
    await asyncio.wait([talk.task])


# -- order ----------------------------------------------------------------------------------------


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


async def test_decoupled_model_waits_for_nobody(talk: Talk) -> None:
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


# -- errors ---------------------------------------------------------------------------------------


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


async def test_unknown_model_counts_before_what_else_is_wrong(talk: Talk) -> None:
    """As for unary requests: nobody can say what a model that is not there would accept."""
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


# -- final flags ----------------------------------------------------------------------------------


@pytest.mark.contract("GP-06", "DC-02")
@pytest.mark.parametrize("empty_final", [False, True])
async def test_flag_is_on_the_last_response_when_it_came_with_it(
    talk: Talk, empty_final: bool
) -> None:
    await talk.say(ask("many", "x", empty_final=empty_final))
    await talk.answer("x", number(1), number(2, final=True))
    assert numbers(talk.responses) == [("x", 1), ("x", 2)]
    assert finals(talk.responses) == [False, True]


@pytest.mark.contract("GP-05", "DC-02")
async def test_end_without_a_response_is_told_only_to_who_asks(talk: Talk) -> None:
    await talk.say(ask("many", "plain"), ask("many", "curious", empty_final=True))
    await talk.answer("plain", number(1))
    await talk.answer("curious", number(2))
    talk.server.streams["plain"].end()
    talk.server.streams["curious"].end()
    await turns()
    assert numbers(talk.responses[:2]) == [("plain", 1), ("curious", 2)]
    assert finals(talk.responses) == [False, False, True]


@pytest.mark.contract("GP-05")
async def test_empty_final_message_says_whose_it_is_and_nothing_more(talk: Talk) -> None:
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


# -- the end --------------------------------------------------------------------------------------


@pytest.mark.contract("GP-20")
async def test_half_close_waits_for_the_answers(talk: Talk) -> None:
    await talk.say(ask("many", "a"), ask("once", "b"))
    talk.call.half_close()
    await turns()
    assert not talk.task.done()
    await talk.answer("a", number(1, final=True))
    await talk.answer("b", number(2, final=True))
    await asyncio.wait_for(talk.task, PATIENCE)
    assert numbers(talk.responses) == [("a", 1), ("b", 2)]


async def test_call_without_requests_ends(talk: Talk) -> None:
    await talk.end()
    assert talk.responses == []


@pytest.mark.contract("GP-22")
async def test_cancelled_call_cancels_every_request(talk: Talk) -> None:
    await talk.say(ask("many", "a"), ask("once", "b"), ask("once", "c"))
    talk.task.cancel()
    await asyncio.wait([talk.task])
    assert sorted(talk.server.closed) == ["a", "b", "c"]


async def test_request_admitted_just_before_the_cancellation_is_cancelled_too() -> None:
    """Its own task has not had its first step then."""
    server, call = ManualServer(), Call()

    async def requests() -> AsyncIterator[InferMessage]:
        yield received(ask("many", "a"))
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Conversation(server, call).run(requests())
    assert server.closed == ["a"]


@pytest.mark.contract("GP-18")
async def test_call_whose_time_is_up_ends_with_that_status(at_once: bool) -> None:
    talk = Talk(at_once=at_once, deadline=asyncio.get_running_loop().time() + 100)
    await talk.say(ask("many", "a"), ask("many", "b"))
    await talk.answer("a", number(1))
    for stream in talk.server.streams.values():
        stream.abort(DeadlineExceededError("Deadline Exceeded"))
    with pytest.raises(DeadlineExceededError):
        await asyncio.wait_for(talk.task, PATIENCE)
    assert numbers(talk.responses) == [("a", 1)]


# -- back-pressure --------------------------------------------------------------------------------


async def test_slow_reader_holds_back_every_request_of_its_stream(talk: Talk) -> None:
    await talk.say(ask("many", "a"), ask("many", "b"))
    talk.call.may_write.clear()
    await talk.answer("a", *map(number, range(10)))
    await talk.answer("b", *map(number, range(10)))
    backlogs = [stream.backlog for stream in talk.server.streams.values()]
    assert backlogs == [9, 10]  # one response is in the writer's hands
    talk.call.may_write.set()
    await turns(60)
    assert len(talk.responses) == 20


async def test_response_that_taking_one_brings_comes_after_it(talk: Talk) -> None:
    await talk.say(ask("many", "a"), ask("many", "b"))
    stream = talk.server.streams["a"]
    rest = iter([*map(number, range(2, 9)), number(9, final=True)])

    def went(_: int) -> None:
        if (response := next(rest, None)) is not None:
            stream.send(response)

    stream.connect(lambda: None, went)
    talk.call.may_write.clear()
    await talk.answer("b", number(0))
    await talk.answer("a", number(1))
    talk.call.may_write.set()
    await turns(60)
    assert numbers(talk.responses) == [("b", 0), *(("a", value) for value in range(1, 10))]


async def test_slow_reader_does_not_hold_back_requests(talk: Talk) -> None:
    talk.call.may_write.clear()
    await talk.say(ask("many", "a"))
    await talk.answer("a", number(1))
    await talk.say(ask("many", "b"))
    assert set(talk.server.streams) == {"a", "b"}


# -- when the server stops -------------------------------------------------------------------------


@pytest.mark.contract("G-35")
async def test_an_idle_stream_ends_when_the_server_stops(talk: Talk) -> None:
    await talk.say(ask("once", "a"))
    await talk.answer("a", number(1, final=True))
    talk.server.stopped.set()
    with pytest.raises(UnavailableError, match="has stopped accepting new requests"):
        await asyncio.wait_for(talk.task, PATIENCE)


async def test_what_is_under_way_is_answered_before_the_stream_ends(talk: Talk) -> None:
    await talk.say(ask("once", "a"))
    talk.server.stopped.set()
    await turns()
    assert not talk.task.done()
    await talk.answer("a", number(1, final=True))
    assert len(talk.responses) == 1
    with pytest.raises(UnavailableError):
        await asyncio.wait_for(talk.task, PATIENCE)


# -- errors as the status of the call -------------------------------------------------------------


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


async def test_nothing_is_told_after_the_error_that_ends_the_call(strict_talk: Talk) -> None:
    talk = strict_talk
    await talk.say(ask("many", "bad"))
    error = InferenceResponse(error=NotFoundError("not there"))
    await talk.answer("bad", error, number(1), number(2, final=True))
    with pytest.raises(NotFoundError, match=r"^not there$"):
        await asyncio.wait_for(talk.task, PATIENCE)
    assert talk.responses == []


@pytest.mark.contract("GP-19")
async def test_refusal_ends_the_call(strict_talk: Talk) -> None:
    await strict_talk.say(ask("many", "other"), ask("nope", "bad"))
    with pytest.raises(NotFoundError, match="'nope' is not found"):
        await asyncio.wait_for(strict_talk.task, PATIENCE)
    assert strict_talk.server.closed == ["other"]


async def test_error_text_with_half_a_surrogate_pair_is_told(talk: Talk) -> None:
    await talk.say(ask("once", "bad"))
    talk.server.streams["bad"].fail(InternalError("\ud800!"))
    await turns()
    assert talk.responses[0].error_message == "?!"


# -- many requests, many models --------------------------------------------------------------------


async def test_flood_of_one_model_delays_no_other(talk: Talk) -> None:
    """Models take turns: what waits for one of them is no queue for the others."""
    await talk.say(*(ask("many", f"flood{n}") for n in range(50)), ask("many2", "calm"))
    talk.call.may_write.clear()
    for n in range(50):
        await talk.answer(f"flood{n}", number(n), number(n))
    await talk.answer("calm", number(7))
    talk.call.may_write.set()
    await turns(200)
    order = [response.infer_response.id for response in talk.responses]
    assert len(order) == 101
    assert order.index("calm") <= 2


@pytest.mark.contract("GP-24")
async def test_reading_stops_while_too_much_is_being_answered(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_answers, "MOST_OPEN", 3)
    await talk.say(*(ask("once", str(n)) for n in range(5)))
    assert len(talk.server.requests) == 3
    await talk.answer("0", number(0, final=True))
    assert len(talk.server.requests) == 4
    for n in range(1, 5):
        await talk.answer(str(n), number(n, final=True))
    assert [value for _, value in numbers(talk.responses)] == list(range(5))


async def test_reading_stops_while_large_requests_are_being_answered(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_answers, "MOST_BYTES", 1000)
    large = ask("once", "large")
    large.inputs.add(name="IN", datatype="UINT8", shape=[1000])
    large.raw_input_contents.append(bytes(1000))
    await talk.say(large, ask("once", "next"))
    assert [request.id for request in talk.server.requests] == ["large"]
    await talk.answer("large", number(1, final=True))
    assert [request.id for request in talk.server.requests] == ["large", "next"]


async def test_many_requests_need_no_tasks_of_their_own(talk: Talk) -> None:
    before = len(asyncio.all_tasks())
    await talk.say(*(ask("many", str(n)) for n in range(1000)))
    await turns(1100)
    assert len(talk.server.requests) == 1000
    assert len(asyncio.all_tasks()) == before
