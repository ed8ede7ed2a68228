"""Requests on their way through ensembles of fake models."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.errors import (
    InferenceError,
    InvalidRequestError,
    NotFoundError,
    RejectedError,
    RequestCancelledError,
    UnavailableError,
)
from penstock.core.request import InferenceResponse
from penstock.core.statistics import FailureReason
from penstock.core.stream import ResponseStream
from penstock.core.window import WINDOW
from penstock.scheduling.ensemble import EnsembleScheduler
from scheduling.ensembles import Asked, FakeModel, ask, plan, step, tensor, values

ONE, TWO, THREE = tensor(1), tensor(2), tensor(3)

CHAIN = plan([step("first", "A", "B"), step("second", "B", "C")], "C")
FORK = plan([step("left", "A", "L"), step("right", "A", "R"), step("join", "L R", "D")], "D")
STREAM = plan([step("tokens", "A", "T", decoupled=True), step("text", "T", "U")], "U")
BARE = plan([step("tokens", "A", "T", decoupled=True)], "T")


def _chain() -> tuple[FakeModel, FakeModel, Asked]:
    first, second = FakeModel(), FakeModel()
    asked = ask(EnsembleScheduler(CHAIN, [first, second]), {"A": ONE})
    return first, second, asked


def _stream(limit: int = 0) -> tuple[FakeModel, FakeModel, Asked]:
    tokens, text = FakeModel(), FakeModel()
    asked = ask(EnsembleScheduler(STREAM, [tokens, text], limit), {"A": ONE})
    return tokens, text, asked


def _failure(asked: Asked) -> InferenceError:
    assert asked.stream.ended
    assert asked.stream.error is not None
    return asked.stream.error


# -- depth ---------------------------------------------------------------------------------------


def test_a_chain_of_steps_that_answer_at_once_may_be_long() -> None:
    length = 2000
    steps = [step("next", f"T{n}", f"T{n + 1}") for n in range(length)]
    names = iter(range(1, length + 1))
    model = FakeModel(answer=lambda _: {f"T{next(names)}": ONE})
    asked = ask(EnsembleScheduler(plan(steps, f"T{length}"), [model] * length), {"T0": ONE})
    assert asked.taken() == [{f"T{length}": [1]}]


def test_any_number_of_calls_may_wait_for_a_model_that_refuses_them() -> None:
    model = FakeModel()
    scheduler = EnsembleScheduler(plan([step("m", "A", "B")], "B"), [model], 1)
    asked = [ask(scheduler, {"A": ONE}) for _ in range(2000)]
    model.refusal = UnavailableError("it is gone")
    model.streams[0].fail(model.refusal)
    assert {_failure(each).message for each in asked} == {"in ensemble 'ens', it is gone"}
    model.refusal = None
    assert ask(scheduler, {"A": ONE}).stream.error is None
    assert len(model.requests) == 2


@pytest.mark.contract("E-11", "E-13")
def test_requests_that_leave_while_they_wait_for_a_place_are_forgotten() -> None:
    model = FakeModel()
    scheduler = EnsembleScheduler(plan([step("m", "A", "B")], "B"), [model], 1)
    first, *others = (ask(scheduler, {"A": ONE}) for _ in range(10))
    for other in others[1:]:
        other.stream.close()
    assert scheduler._ensemble.limits[0].waiting == 1
    model.reply(B=TWO)
    assert len(model.requests) == 2
    model.reply(B=TWO)
    assert [first.taken(), others[0].taken()] == [[{"B": [2]}]] * 2


# -- one answer ----------------------------------------------------------------------------------


@pytest.mark.contract("E-01")
def test_what_a_step_makes_is_what_the_next_one_gets() -> None:
    first, second, asked = _chain()
    assert second.requests == []
    first.reply(B=TWO)
    assert second.requests[0].inputs == {"B": TWO}
    second.reply(C=THREE)
    assert asked.taken() == [{"C": [3]}]
    assert asked.stream.exhausted


@pytest.mark.contract("E-19")
def test_tensors_are_handed_on_and_not_copied() -> None:
    first, second, asked = _chain()
    first.reply(B=TWO)
    assert second.requests[0].inputs["B"] is TWO
    second.reply(C=THREE)
    (response,) = asked.stream.take()
    assert response.outputs["C"] is THREE
    assert response.final


@pytest.mark.contract("E-02")
def test_branches_run_at_the_same_time_and_are_joined() -> None:
    left, right, join = FakeModel(), FakeModel(), FakeModel()
    asked = ask(EnsembleScheduler(FORK, [left, right, join]), {"A": ONE})
    assert (left.running, right.running) == (1, 1)
    right.reply(R=THREE)
    assert join.requests == []
    left.reply(L=TWO)
    assert values(InferenceResponse(join.requests[0].inputs)) == {"L": [2], "R": [3]}
    join.reply(D=ONE)
    assert asked.taken() == [{"D": [1]}]


def test_models_that_answer_at_once_are_no_matter() -> None:
    models = [
        FakeModel(lambda _: {"L": TWO}),
        FakeModel(lambda _: {"R": THREE}),
        FakeModel(lambda request: {"D": request.inputs["R"]}),
    ]
    asked = ask(EnsembleScheduler(FORK, models), {"A": ONE})
    assert asked.taken() == [{"D": [3]}]
    assert [len(model.requests) for model in models] == [1, 1, 1]


@pytest.mark.contract("E-18")
def test_only_the_outputs_that_are_asked_for_are_made() -> None:
    two = plan([step("a", "A", "B"), step("b", "A", "C")], "B C")
    a, b = FakeModel(lambda _: {"B": TWO}), FakeModel()
    asked = ask(EnsembleScheduler(two, [a, b]), {"A": ONE}, requested_outputs=("B",))
    assert asked.taken() == [{"B": [2]}]
    assert b.requests == []


@pytest.mark.contract("E-12", "S-21")
def test_steps_get_what_was_asked_with_the_request() -> None:
    first = FakeModel()
    scheduler = EnsembleScheduler(CHAIN, [first, FakeModel()])
    fields: dict[str, Any] = {
        "id": "x",
        "priority": 2,
        "timeout": 5,
        "parameters": {"a": "b"},
        "correlation_id": "s",
        "sequence_start": True,
        "sequence_end": False,
        "deadline": 12.5,
        "callers": ("bls_0",),
    }
    ask(scheduler, {"A": ONE}, **fields)
    (request,) = first.requests
    assert {name: getattr(request, name) for name in fields} == fields
    assert (request.model_name, request.requested_outputs) == ("first", ("B",))


def test_only_the_last_step_puts_outputs_where_the_client_wants_them() -> None:
    place: Any = object()
    places = {"B": place, "C": place}
    two = plan([step("first", "A", "B"), step("second", "B", "C")], "B C")
    first, second = FakeModel(lambda _: {"B": TWO}), FakeModel()
    ask(EnsembleScheduler(two, [first, second]), {"A": ONE}, output_places=places)
    assert first.requests[0].output_places == {}  # the second step reads it as well
    assert second.requests[0].output_places == {"C": place}


def test_outputs_whose_classes_are_asked_for_stay_in_the_server() -> None:
    first = FakeModel()
    bare = plan([step("first", "A", "B")], "B")
    wanted: dict[str, Any] = {"output_places": {"B": object()}, "classes": {"B": 3}}
    ask(EnsembleScheduler(bare, [first]), {"A": ONE}, **wanted)
    assert (first.requests[0].output_places, first.requests[0].classes) == ({}, {})


@pytest.mark.contract("E-12")
def test_a_step_may_change_the_sequence_for_those_after_it() -> None:
    first, second, asked = _chain()
    first.reply(B=TWO, said={"sequence_id": 9, "sequence_end": True})
    request = second.requests[0]
    assert (request.correlation_id, request.sequence_end) == (9, True)
    second.reply(C=THREE)
    (response,) = asked.stream.take()
    assert response.parameters == {"sequence_id": 9, "sequence_start": False, "sequence_end": True}


def test_a_step_that_says_nonsense_of_its_sequence_fails_the_request() -> None:
    first, second, asked = _chain()
    first.reply(B=TWO, said={"sequence_start": 1})
    assert "to be TRITONSERVER_PARAMETER_BOOL" in _failure(asked).message
    assert second.requests == []


@pytest.mark.contract("E-08")
def test_an_optional_input_that_is_absent_is_absent_for_the_step() -> None:
    model = FakeModel(lambda request: {"C": tensor(len(request.inputs))})
    scheduler = EnsembleScheduler(plan([step("m", "A O", "C")], "C", ["O"]), [model])
    assert ask(scheduler, {"A": ONE}).taken() == [{"C": [1]}]
    assert ask(scheduler, {"A": ONE, "O": TWO}).taken() == [{"C": [2]}]


@pytest.mark.contract("E-08")
def test_an_output_that_a_model_leaves_out_is_absent_for_the_next() -> None:
    first, second, asked = _chain()
    first.reply()
    assert second.requests[0].inputs == {}
    second.reply()
    assert asked.taken() == [{}]


@pytest.mark.contract("E-09")
def test_an_ensemble_that_comes_to_a_standstill_says_so() -> None:
    first, _, asked = _chain()
    first.streams[0].end()
    error = _failure(asked)
    assert isinstance(error, InvalidRequestError)
    assert error.message == (
        "in ensemble 'ens', [request id: <id_unknown>] unexpected deadlock, at least one output is"
        " not set while no more ensemble steps can be made"
    )


def test_a_second_answer_of_a_step_that_has_one_is_not_listened_to() -> None:
    first, second, asked = _chain()
    first.reply(B=TWO, final=False)
    first.reply(B=THREE)
    assert len(second.requests) == 1
    second.reply(C=ONE)
    assert asked.taken() == [{"C": [1]}]


# -- failures ------------------------------------------------------------------------------------


@pytest.mark.contract("E-07")
def test_a_step_that_fails_fails_the_request_with_its_code() -> None:
    first, second, asked = _chain()
    first.streams[0].fail(NotFoundError("no such word"))
    error = _failure(asked)
    assert (type(error), error.message) == (NotFoundError, "in ensemble 'ens', no such word")
    assert second.requests == []


def test_an_error_that_is_a_response_fails_the_request() -> None:
    first, _, asked = _chain()
    first.streams[0].send(InferenceResponse(error=NotFoundError("no such word")))
    assert _failure(asked).message == "in ensemble 'ens', no such word"
    assert first.cancelled == [0]


def test_a_request_that_a_step_refuses_fails() -> None:
    models = FakeModel(lambda _: {"B": TWO}), FakeModel(refusal=UnavailableError("it is away"))
    asked = ask(EnsembleScheduler(CHAIN, models), {"A": ONE})
    error = _failure(asked)
    assert (type(error), error.message) == (UnavailableError, "in ensemble 'ens', it is away")


def test_steps_beside_one_that_fails_are_cancelled() -> None:
    left, right, join = FakeModel(), FakeModel(), FakeModel()
    asked = ask(EnsembleScheduler(FORK, [left, right, join]), {"A": ONE})
    left.streams[0].fail(NotFoundError("no"))
    assert (right.cancelled, join.requests) == ([0], [])
    right.reply(R=ONE)  # too late
    assert asked.taken() == []


@pytest.mark.contract("ME-28")
def test_a_failure_is_counted_twice_as_in_the_real_server() -> None:
    first, _, asked = _chain()
    first.streams[0].fail(RejectedError("queue full"))
    assert asked.statistics.fail.count == 2
    assert asked.statistics.failures == {FailureReason.OTHER: 2}
    assert (asked.statistics.success.count, asked.statistics.in_flight) == (0, 0)


# -- cancellation --------------------------------------------------------------------------------


@pytest.mark.contract("E-13")
def test_closing_the_stream_cancels_what_runs() -> None:
    left, right, join = FakeModel(), FakeModel(), FakeModel()
    asked = ask(EnsembleScheduler(FORK, [left, right, join]), {"A": ONE})
    left.reply(L=ONE)
    asked.stream.close()
    assert (left.cancelled, right.cancelled) == ([], [0])
    right.reply(R=ONE)
    assert join.requests == []
    assert asked.statistics.failures == {FailureReason.CANCELED: 1}
    assert asked.statistics.in_flight == 0


def test_a_request_that_is_cancelled_leaves_others_alone() -> None:
    first, second = FakeModel(), FakeModel()
    scheduler = EnsembleScheduler(CHAIN, [first, second])
    gone, stays = ask(scheduler, {"A": ONE}), ask(scheduler, {"A": TWO})
    gone.stream.close()
    first.reply(B=TWO)
    second.reply(C=THREE)
    assert stays.taken() == [{"C": [3]}]


def test_abandoning_fails_all_that_are_on_their_way() -> None:
    first = FakeModel()
    scheduler = EnsembleScheduler(CHAIN, [first, FakeModel()])
    asked = [ask(scheduler, {"A": ONE}) for _ in range(3)]
    scheduler.abandon(UnavailableError("the end"))
    texts = [_failure(one).message for one in asked]
    assert texts == ["in ensemble 'ens', the end"] * 3
    assert first.running == 0


async def test_draining_waits_for_nothing() -> None:
    await EnsembleScheduler(CHAIN, [FakeModel(), FakeModel()]).drain()


# -- many answers --------------------------------------------------------------------------------


@pytest.mark.contract("E-10")
def test_every_response_of_a_decoupled_step_runs_the_rest() -> None:
    tokens, text, asked = _stream()
    for number in range(3):
        tokens.reply(T=tensor(number), final=False)
    assert [request.inputs["T"].numpy().tolist() for request in text.requests] == [[0], [1], [2]]
    for number in range(3):
        text.reply(to=number, U=tensor(number))
    assert asked.taken() == [{"U": [0]}, {"U": [1]}, {"U": [2]}]
    assert not asked.stream.ended
    tokens.streams[0].end()
    assert asked.stream.exhausted


@pytest.mark.contract("E-10")
def test_responses_keep_the_order_of_the_decoupled_step() -> None:
    tokens, text, asked = _stream()
    for _ in range(3):
        tokens.reply(T=ONE, final=False)
    text.reply(to=2, U=tensor(2))
    text.reply(to=1, U=tensor(1))
    assert asked.taken() == []
    text.reply(to=0, U=tensor(0))
    assert asked.taken() == [{"U": [0]}, {"U": [1]}, {"U": [2]}]


@pytest.mark.contract("E-10", "DC-02")
def test_the_final_flag_travels_with_the_last_response_if_it_can() -> None:
    tokens, text, asked = _stream()
    tokens.reply(T=ONE, final=False)
    tokens.streams[0].end()
    text.reply(U=TWO)
    (response,) = asked.stream.take()
    assert response.final


@pytest.mark.contract("E-10", "DC-02")
def test_a_decoupled_step_without_responses_ends_the_request_well() -> None:
    tokens, _, asked = _stream()
    tokens.streams[0].end()
    assert asked.stream.exhausted
    assert asked.stream.error is None
    assert (asked.taken(), asked.statistics.success.count) == ([], 1)


def test_a_final_response_of_the_decoupled_step_is_the_last() -> None:
    models = [FakeModel()]
    asked = ask(EnsembleScheduler(BARE, models), {"A": ONE})
    models[0].reply(T=ONE, final=False)
    models[0].reply(T=TWO)
    first, last = asked.stream.take()
    assert (values(first), first.final) == ({"T": [1]}, False)
    assert (values(last), last.final) == ({"T": [2]}, True)


def test_a_failure_comes_after_the_responses_before_it() -> None:
    models = [FakeModel()]
    asked = ask(EnsembleScheduler(BARE, models), {"A": ONE})
    models[0].reply(T=ONE, final=False)
    models[0].streams[0].fail(NotFoundError("mid stream"))
    assert asked.taken() == [{"T": [1]}]
    assert _failure(asked).message == "in ensemble 'ens', mid stream"


def test_a_wave_without_an_answer_is_passed_over() -> None:
    tokens, text, asked = _stream()
    for _ in range(2):
        tokens.reply(T=ONE, final=False)
    text.streams[0].end()
    text.reply(to=1, U=TWO)
    assert asked.taken() == [{"U": [2]}]


@pytest.mark.contract("E-10")
def test_decoupled_steps_may_follow_each_other() -> None:
    chain = plan([step("a", "A", "B", decoupled=True), step("b", "B", "C", decoupled=True)], "C")
    a, b = FakeModel(), FakeModel()
    asked = ask(EnsembleScheduler(chain, [a, b]), {"A": ONE})
    a.reply(B=ONE, final=False)
    a.reply(B=TWO)
    for to in (0, 1):
        for number in range(2):
            b.reply(to=to, C=tensor(to, number), final=False)
        b.streams[to].end()
    assert [sorted(answer["C"]) for answer in asked.taken()] == [[0, 0], [0, 1], [0, 1], [1, 1]]
    assert asked.stream.exhausted


def test_closing_cancels_the_producer_and_what_runs_of_its_responses() -> None:
    tokens, text, asked = _stream()
    for _ in range(3):
        tokens.reply(T=ONE, final=False)
    asked.stream.close()
    assert (tokens.cancelled, sorted(text.cancelled)) == ([0], [0, 1, 2])


# -- how far it goes ahead ------------------------------------------------------------------------


@pytest.mark.contract("E-11")
def test_a_step_that_has_no_place_makes_the_producer_wait() -> None:
    tokens, text, asked = _stream(limit=2)
    for number in range(6):
        tokens.reply(T=tensor(number), final=False)
    assert len(text.requests) == 2
    assert tokens.streams[0].backlog == 3  # one more was taken and waits for its place
    for number in range(6):
        text.reply(to=number, U=tensor(number))
    assert [answer["U"] for answer in asked.taken()] == [[n] for n in range(6)]


@pytest.mark.contract("E-11")
def test_the_limit_is_that_of_all_requests_together() -> None:
    first, second = FakeModel(), FakeModel()
    scheduler = EnsembleScheduler(CHAIN, [first, second], max_inflight=1)
    asked = [ask(scheduler, {"A": ONE}) for _ in range(3)]
    assert len(first.requests) == 1
    asked[1].stream.close()  # gives up its place in the line
    first.reply(B=TWO)
    assert len(first.requests) == 2
    second.reply(C=ONE)
    first.reply(B=THREE)
    second.reply(C=TWO)
    assert [one.taken() for one in asked] == [[{"C": [1]}], [], [{"C": [2]}]]


def test_a_cancelled_call_gives_its_place_back() -> None:
    first = FakeModel()
    scheduler = EnsembleScheduler(CHAIN, [first, FakeModel()], max_inflight=1)
    gone = ask(scheduler, {"A": ONE})
    ask(scheduler, {"A": TWO})
    gone.stream.close()
    assert len(first.requests) == 2


def test_a_refused_call_gives_its_place_back() -> None:
    first = FakeModel(refusal=UnavailableError("away"))
    scheduler = EnsembleScheduler(CHAIN, [first, FakeModel()], max_inflight=1)
    ask(scheduler, {"A": ONE})
    first.refusal = None
    ask(scheduler, {"A": ONE})
    assert len(first.requests) == 1


def test_a_reader_that_does_not_read_makes_the_producer_wait() -> None:
    models = [FakeModel()]
    asked = ask(EnsembleScheduler(BARE, models), {"A": ONE})
    for number in range(100):
        models[0].reply(T=tensor(number), final=False)
    assert asked.stream.backlog == 16
    read = [answer["T"][0] for _ in range(100) for answer in asked.taken()]
    assert read == list(range(100))


def test_waves_on_their_way_are_bounded_even_without_a_limit() -> None:
    tokens, text, asked = _stream()
    for _ in range(300):
        tokens.reply(T=ONE, final=False)
    assert len(text.requests) == 256
    text.streams[0].end()
    assert len(text.requests) == 257
    asked.stream.close()


# -- statistics -----------------------------------------------------------------------------------


@pytest.mark.contract("E-15", "ME-07")
def test_compute_times_are_the_sums_of_the_steps() -> None:
    first, second, asked = _chain()
    assert asked.statistics.pending == 0  # an ensemble has no queue
    first.reply(B=TWO)
    second.reply(C=THREE)
    statistics = asked.statistics
    times = (statistics.compute_input, statistics.compute_infer, statistics.compute_output)
    assert [(time.count, time.ns) for time in times] == [(1, 2), (1, 4), (1, 6)]
    assert (statistics.success.count, statistics.execution_count) == (1, 1)
    assert statistics.batches[1].compute_infer.ns == 4


def test_a_stream_that_was_closed_by_the_reader_is_an_error_of_that_kind() -> None:
    _, _, asked = _chain()
    asked.stream.close()
    assert isinstance(_failure(asked), RequestCancelledError)


class Burst(FakeModel):
    """Has `count` answers at once."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__()
        self._name, self._count = name, count

    def infer(self, request: Any, within: Any = None) -> ResponseStream:
        stream = super().infer(request, within)
        for _ in range(self._count):
            stream.send(InferenceResponse({self._name: ONE}))
        stream.end()
        return stream


@pytest.mark.contract("E-11")
def test_what_a_step_has_ready_at_once_goes_no_farther_ahead_of_the_reader() -> None:
    text = FakeModel(answer=lambda request: {"U": request.inputs["T"]})
    asked = ask(EnsembleScheduler(STREAM, [Burst("T", 1000), text]), {"A": ONE})
    assert asked.stream.full
    ahead = len(text.requests)
    assert ahead <= WINDOW.responses
    read = 0
    while taken := asked.taken():
        read += len(taken)
        assert len(text.requests) - read <= ahead
    assert (read, len(text.requests), asked.stream.exhausted) == (1000, 1000, True)


@pytest.mark.contract("E-11")
def test_answers_of_answers_go_no_farther_ahead_and_no_deeper() -> None:
    graph = plan([step("a", "A", "B", decoupled=True), step("b", "B", "C", decoupled=True)], "C")
    second = Burst("C", 100)
    asked = ask(EnsembleScheduler(graph, [Burst("B", 100), second]), {"A": ONE})
    assert len(second.requests) <= WINDOW.responses
    read = 0
    while taken := asked.taken():
        read += len(taken)
    assert (read, len(second.requests), asked.stream.exhausted) == (10_000, 100, True)
