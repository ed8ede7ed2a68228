"""States that the server keeps for a model."""

from __future__ import annotations

import pytest

from conformance.python_models.client import Client
from conformance.python_models.sequences.models import options, row, sequential

MODELS = sequential("kept", "kept_oldest")


@pytest.mark.contract("S-16", "S-17", "S-18")
@pytest.mark.parametrize(("model", "first"), [("kept", 5), ("kept_oldest", 0)])
def test_the_server_keeps_the_state_of_a_sequence(client: Client, model: str, first: int) -> None:
    """Of fixed and of growing length; a state that is an output as well is shown."""
    for id in (50, 51):
        client.infer(model, row(id), **options(id, 0))
    for id in (51, 50):
        answer = client.infer(model, row(1), **options(id))
        assert {name: array.tolist() for name, array in answer.outputs.items()} == {
            "Y": [[id + 1]],
            "COUNT_OUT": [[first + 2]],
        }
        client.infer(model, row(1), **options(id, 2))


@pytest.mark.contract("S-16")
def test_states_are_kept_whatever_outputs_are_asked_for(client: Client) -> None:
    answers = [
        client.infer("kept", row(x), outputs=["Y"], **options(52, at))
        for at, x in enumerate((1, 2, 3))
    ]
    assert [[*answer.outputs] for answer in answers] == [["Y"]] * 3
    assert [answer["Y"].item() for answer in answers] == [1, 3, 6]


@pytest.mark.contract("S-16")
def test_an_error_leaves_the_state_as_it_was(client: Client) -> None:
    client.infer("kept", row(4), **options(53, 0))
    assert "no such number" in client.refusal("kept", row(-1), **options(53)).message
    assert client.infer("kept", row(5), **options(53, 2))["Y"].item() == 9
