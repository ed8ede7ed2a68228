"""Sequences of Python models, asked for by the stock clients."""

from __future__ import annotations

import os
import signal
import time
from itertools import accumulate

import pytest

from conformance.python_models.client import Client, RefusedError, ints
from conformance.python_models.sequences.models import BOTH, options, row, sequential, sums
from harness.serving import Served, alive, wait_until

MODELS = sequential(
    "simple_sequence",
    "simple_dyna_sequence",
    "pipeline",
    "sums",
    "oldest",
    "mortal",
    "rows",
    "brief",
    "texts",
    "caller",
)

# -- requests -------------------------------------------------------------------------------------


@pytest.mark.contract("S-01", "GP-01", "GP-02")
@BOTH
@pytest.mark.parametrize("id", [7, (1 << 63) - 1, -7])
def test_a_model_has_a_state_for_each_sequence(client: Client, model: str, id: int) -> None:
    assert sums(client, model, id, 1, 2, 3) == [1, 3, 6]


@pytest.mark.contract("GP-17")
@BOTH
def test_a_sequence_on_one_stream_is_answered_in_order(client: Client, model: str) -> None:
    talk = client.talk(model, [(row(x), options(8, x, 50)) for x in range(50)])
    assert [int(answer["Y"].flat[-1]) for answer in talk] == [*accumulate(range(50))]


@pytest.mark.contract("X-06", "HI-15")
def test_sequences_over_http(server: Served) -> None:
    with Client(server.http, "http") as client:
        assert sums(client, "sums", 9, 4, 5, 6) == [4, 9, 15]


@pytest.mark.contract("PY-31", "PY-14")
def test_a_model_hands_on_the_sequence_that_it_is_asked_in(client: Client) -> None:
    asked = [({"X": ints(x)}, options(10, at)) for at, x in enumerate((3, 4, 5))]
    answers = [client.infer("caller", x, **how)["Y"] for x, how in asked]
    assert [int(answer[-1]) for answer in answers] == [3, 7, 12]
    refused = client.refusal("caller", {"X": ints(1)}, sequence_id=11)
    assert "must specify the START flag" in refused.message


@pytest.mark.contract("S-09")
def test_a_sequence_that_idles_ends(client: Client) -> None:
    client.infer("brief", row(1), **options(20, 0))

    def ended() -> bool:
        """Asked rarely, since asking is a sign of life."""
        time.sleep(0.4)
        try:
            client.infer("brief", row(2), **options(20))
        except RefusedError as refused:
            return refused.message.endswith("START flag on the first request of the sequence")
        return False

    wait_until(ended)


@pytest.mark.contract("S-24")
@pytest.mark.parametrize(
    ("model", "adds_id"), [("simple_sequence", False), ("simple_dyna_sequence", True)]
)
def test_the_examples_of_the_documentation(client: Client, model: str, adds_id: bool) -> None:
    numbers = (11, 7, 5, 3, 2, 0, 1)
    for sign, id in ((1, 1000), (-1, 1001)):
        requests = [
            ({"INPUT": ints(sign * x).reshape(1, 1)}, options(id, at, len(numbers)))
            for at, x in enumerate(numbers)
        ]
        told = [int(answer["OUTPUT"].item()) for answer in client.talk(model, requests)]
        expected = [*accumulate(sign * x for x in numbers)]
        expected[-1] += id * adds_id
        assert told == expected


@pytest.mark.contract("S-21", "E-12")
def test_an_ensemble_hands_on_the_sequence_to_its_steps(client: Client) -> None:
    asked = [({"A": ints(x).reshape(1, 1)}, options(12, at)) for at, x in enumerate((3, 4, 5))]
    answers = [client.infer("pipeline", x, **how)["B"] for x, how in asked]
    assert [int(answer.flat[-1]) for answer in answers] == [3, 7, 12]


# -- what a model is told -------------------------------------------------------------------------


@pytest.mark.contract("S-13", "S-11")
def test_rows_of_a_batch_are_the_slots(client: Client) -> None:
    for id in (31, 32):
        client.infer("rows", row(id), **options(id, 0))
    (text,) = client.infer("rows", row(7), **options(32))["Y"].flat
    assert text == b"[[0, 0, 0, 0, 0], [7, 0, 0, 1, 32]]"
    counted = client.call("get_inference_statistics", model_name="rows", as_json=True)
    batches = counted["model_stats"][0]["batch_stats"]
    assert {batch["batch_size"] for batch in batches} == {"1", "2"}
    client.infer("rows", row(8), **options(31, 2))
    client.infer("rows", row(8), **options(32, 2))


@pytest.mark.contract("S-12", "X-06")
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_model_may_take_ids_as_texts(server: Served, protocol: str) -> None:
    with Client(getattr(server, protocol), protocol) as client:
        (text,) = client.infer("texts", row(1), sequence_id="Zoë", sequence_start=True)["Y"].flat
        assert text.decode() == '[[1, 1, 0, 1, "Zo\\u00eb"]]'
        client.infer("texts", row(1), sequence_id="Zoë", sequence_end=True)


@pytest.mark.contract("S-12", "V-16")
@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize(
    ("model", "id", "text"),
    [
        ("sums", "seven", "data-type is 'BYTES', but model 'sums' expects 'UINT64'"),
        ("oldest", "7", "data-type is 'BYTES', but model 'oldest' expects 'UINT64'"),
        ("texts", 7, "data-type is 'UINT64', but model 'texts' expects 'BYTES'"),
    ],
)
def test_an_id_of_another_kind_is_refused(
    server: Served, protocol: str, model: str, id: int | str, text: str
) -> None:
    with Client(getattr(server, protocol), protocol) as client:
        refused = client.refusal(model, row(1), **options(id, 0), request_id="r")
    code = {"grpc": "INVALID_ARGUMENT", "http": "400"}[protocol]
    message = f"[request id: r] sequence batching control 'ID' {text}"
    assert (refused.code, refused.message) == (code, message)


# -- processes that die ---------------------------------------------------------------------------


def test_a_process_that_dies_takes_its_sequences_along(client: Client) -> None:
    """Those of the other go on, and a new one may have the same id."""
    homes = {id: client.infer("mortal", row(1), **options(id, 0))["Y"][0, 0] for id in (60, 61)}
    assert homes[60] != homes[61]
    os.kill(int(homes[60]), signal.SIGKILL)
    wait_until(lambda: not alive(int(homes[60])))
    wait_until(lambda: client.ready("mortal"))
    refused = client.refusal("mortal", row(2), **options(60))
    assert (refused.code, refused.message) == (
        "UNAVAILABLE",
        "sequence 60 of model 'mortal' was lost when instance 'mortal_0_0' went down; it has to be"
        " started again",
    )
    assert client.infer("mortal", row(5), **options(61))["Y"][0].tolist() == [homes[61], 2, 6]
    client.infer("mortal", row(1), **options(61, 2))
    assert sums(client, "mortal", 60, 1, 2) == [1, 3]
