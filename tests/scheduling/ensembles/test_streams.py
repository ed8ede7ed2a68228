"""Ensembles with decoupled steps: one request, many answers, and how far they go ahead."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.errors import (
    NotFoundError,
    UnavailableError,
)
from penstock.core.flow_control import WINDOW
from penstock.core.request import InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.scheduling.ensembles.scheduler import EnsembleScheduler
from scheduling.ensembles.fake_models import (
    CHAIN,
    Asked,
    FakeModel,
    ask,
    plan,
    step,
    tensor,
    values,
)

ONE, TWO, THREE = tensor(1), tensor(2), tensor(3)

STREAM = plan([step("tokens", "A", "T", decoupled=True), step("text", "T", "U")], "U")
BARE = plan([step("tokens", "A", "T", decoupled=True)], "T")


def _stream(limit: int = 0) -> tuple[FakeModel, FakeModel, Asked]:
    tokens, text = FakeModel(), FakeModel()
    asked = ask(EnsembleScheduler(STREAM, [tokens, text], limit), {"A": ONE})
    return tokens, text, asked


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
    (response,) = asked.stream.take_ready()
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
    first, last = asked.stream.take_ready()
    assert (values(first), first.final) == ({"T": [1]}, False)
    assert (values(last), last.final) == ({"T": [2]}, True)


def test_a_failure_comes_after_the_responses_before_it() -> None:
    models = [FakeModel()]
    asked = ask(EnsembleScheduler(BARE, models), {"A": ONE})
    models[0].reply(T=ONE, final=False)
    models[0].streams[0].fail(NotFoundError("mid stream"))
    assert asked.taken() == [{"T": [1]}]
    assert asked.failure.message == "in ensemble 'ens', mid stream"


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


@pytest.mark.contract("E-11", "SEC-10")
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


# -- answers that are ready at once ---------------------------------------------------------------


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
