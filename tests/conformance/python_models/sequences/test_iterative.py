"""Requests that come again until their model has done with them."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.python_models.client import Client
from conformance.python_models.sequences.models import row, sequential
from harness.serving import wait_until

MODELS = sequential("passes", "numbers")


@pytest.mark.contract("S-20", "PY-28")
def test_a_request_comes_again_until_the_model_has_done_with_it(client: Client) -> None:
    orders = [client.begin("passes", row(x)) for x in (3, 1, 7, 2, 5, 4)]
    answers = [order.result()["Y"].tolist() for order in orders]
    assert answers == [[[3, 0]], [[1, 1]], [[7, 0]], [[2, 0]], [[5, 0]], [[4, 0]]]


@pytest.mark.contract("S-20")
def test_an_iterative_sequence_with_an_id_ends_with_its_request(client: Client) -> None:
    how = {"sequence_id": 40, "sequence_start": True}
    assert client.infer("passes", row(3), **how)["Y"].tolist() == [[3, 0]]
    refused = client.refusal("passes", row(3), sequence_id=40)
    assert "must specify the START flag" in refused.message


@pytest.mark.contract("PY-28")
def test_an_answer_to_a_request_that_comes_again_is_an_error(client: Client) -> None:
    refused = client.refusal("passes", row(-1))
    assert "Expected a None object in the execute function return list for resch" in refused.message
    assert client.infer("passes", row(2))["Y"].tolist() == [[2, 0]]


@pytest.mark.contract("S-20", "PY-28")
def test_a_model_that_streams_batches_requests_that_are_at_different_places(
    client: Client,
) -> None:
    orders = [client.stream("numbers", row(x)) for x in (40, 5, 20)]
    answers = [[answer for answer in order if answer.outputs] for order in orders]
    told = [[int(answer["Y"][0, 0]) for answer in each] for each in answers]
    assert told == [[*range(1, x + 1)] for x in (40, 5, 20)]
    assert max(answer["Y"][0, 1] for each in answers for answer in each) > 1
    finals = [[answer.parameters["triton_final_response"] for answer in each] for each in answers]
    assert [flags.index(True) for flags in finals] == [39, 4, 19]


@pytest.mark.contract("S-10", "S-20")
def test_a_client_that_leaves_ends_what_would_come_again(client: Client) -> None:
    endless = client.stream("numbers", row(1_000_000))
    for _ in range(20):
        endless.next_event()
    endless.cancel()
    wait_until(lambda: _pending(client, "numbers") == 0)
    assert len(client.answers("numbers", row(3))) == 3


def _pending(client: Client, model: str) -> int:
    """Requests that were begun and are neither answered nor failed."""
    stats = client.call("get_inference_statistics", model_name=model, as_json=True)
    before = _counted(stats)
    again = _counted(client.call("get_inference_statistics", model_name=model, as_json=True))
    return int(before != again)


def _counted(stats: Any) -> str:
    return str(stats["model_stats"][0]["execution_count"])
