"""The first, the second, ... response of requests, counted apart."""

from __future__ import annotations

import time

import pytest

from fakes import make_inference
from penstock.core.errors import InternalError
from penstock.core.request import InferenceResponse
from penstock.core.tensor import Tensor
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import MOST, ResponseStatistics, Statistics


def answer(*, final: bool = False) -> InferenceResponse:
    return InferenceResponse({"OUT": Tensor.from_strings(["a"])}, final=final)


def counting(statistics: Statistics) -> Inference:
    """A request that an instance has taken, of a model whose responses are told apart."""
    inference = make_inference(statistics=statistics)
    inference.stream.transform = inference.counting_responses(None)
    inference.started(time.monotonic_ns())
    return inference


def counts(responses: dict[int, ResponseStatistics]) -> dict[int, dict[str, int]]:
    """What is not zero."""
    names = ("compute_infer", "compute_output", "success", "fail", "empty_response", "cancel")
    return {
        index: {n: count for n in names if (count := getattr(one, n).count)}
        for index, one in responses.items()
    }


GOOD = {"compute_infer": 1, "compute_output": 1, "success": 1}


@pytest.mark.contract("ST-04")
def test_each_response_is_counted_by_its_place() -> None:
    statistics = Statistics(each_response=True)
    for count in (1, 3):
        inference = counting(statistics)
        for number in range(count):
            inference.stream.send(answer(final=number == count - 1))
    assert counts(statistics.responses) == {
        0: {"compute_infer": 2, "compute_output": 2, "success": 2},
        1: GOOD,
        2: GOOD,
    }


@pytest.mark.contract("ST-04")
def test_what_ends_a_request_without_data_is_an_empty_response() -> None:
    statistics = Statistics(each_response=True)
    bare = counting(statistics)
    bare.stream.send(answer())
    bare.stream.end()
    counting(statistics).stream.send(InferenceResponse(final=True))
    assert counts(statistics.responses) == {
        0: {**GOOD, "empty_response": 1},
        1: {"empty_response": 1},
    }


@pytest.mark.contract("ST-04")
def test_failures_and_cancellations_have_their_place_too() -> None:
    statistics = Statistics(each_response=True)
    counting(statistics).fail(InternalError("no"))
    counting(statistics).stream.send(InferenceResponse(final=True, error=InternalError("no")))
    left = counting(statistics)
    left.stream.send(answer())
    left.stream.close()
    assert counts(statistics.responses) == {0: {**GOOD, "fail": 2}, 1: {"cancel": 1}}


def test_time_of_a_response_is_from_the_one_before_it() -> None:
    statistics = Statistics(each_response=True)
    inference = counting(statistics)
    inference.compute_start -= 5_000_000_000
    for final in (False, True):
        inference.stream.send(answer(final=final))
    first, second = (statistics.responses[n].success.ns for n in range(2))
    assert first >= 5_000_000_000 > second >= 0


def test_many_responses_take_no_more_room_than_some() -> None:
    statistics = Statistics(each_response=True)
    inference = counting(statistics)
    for number in range(MOST + 10):
        inference.stream.send(answer(final=number == MOST + 9))
    assert len(statistics.responses) == MOST
    assert statistics.responses[MOST - 1].success.count == 11
