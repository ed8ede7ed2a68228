"""Failures that a model survives."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.python_models.client import Client
from conformance.python_models.faults.models import EXPLICIT, Victim, faulty

MODELS = faulty("victim")
ARGUMENTS = EXPLICIT

_AT = "\n\nAt:\n  {path}("
_FAILURES = {
    "raises": "ValueError: no answer" + _AT,
    "refuses": "TritonModelException: not today" + _AT,
    "raises_from": "\n\nCaused by: KeyError: 'key'" + _AT,
    "leaves": "SystemExit: out of here" + _AT,
    "gives_up": "CancelledError: ",
    "panics": "Panic: of a library in Rust" + _AT,
    "recurses": "RecursionError: maximum recursion depth exceeded",
    "raises_bytes": "ValueError: not ",
    "returns_none": "Expected a list in the execute return, found type '<class 'NoneType'>'.",
    "returns_nothing": "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0",
    "returns_too_much": "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:2",
    "returns_numbers": "return list, found type '<class 'int'>'.",
    "sends_a_text": "return list, found type '<class 'str'>'.",
    "answers_a_list": "TypeError: Tensor 'Y' needs a numpy array, got <class 'list'>" + _AT,
    "answers_dates": "TritonModelException: NumPy dtype is not supported." + _AT,
    "reschedules": "RELEASE_RESCHEDULE needs iterative sequences",
    "answers_arrays": "TypeError: expected a Tensor in output_tensors",
}


@pytest.mark.contract("PY-09", "PY-10", "PY-20")
@pytest.mark.parametrize("way", _FAILURES)
def test_model_that_fails_is_asked_again(
    client: Client, repository: Path, pid: int, way: str
) -> None:
    error = client.refusal("victim", request_id=way)
    path = repository / "victim" / "1" / "model.py"
    start = "Failed to process the request(s) for model 'victim_0_0', message: "
    assert error.code == "INTERNAL"
    assert error.message.startswith(start)
    assert _FAILURES[way].format(path=path) in error.message
    assert client.ready("victim")
    assert int(client.infer("victim")["Y"][0]) == pid


@pytest.fixture(scope="module")
def pid(client: Client, repository: Path) -> int:
    """The process of a victim that is not going to end."""
    return Victim(client, repository, "victim").pid()


def test_error_of_any_length_is_told_at_least_in_part(client: Client, pid: int) -> None:
    error = client.refusal("victim", request_id="raises_at_length")
    assert error.code == "INTERNAL"
    assert "ValueError: long long" in error.message
    assert int(client.infer("victim")["Y"][0]) == pid


@pytest.mark.contract("GP-09")
@pytest.mark.parametrize(
    "way", ["answers_bytes", "parameters_in_bytes", "parameters_of_bytes", "parameters_too_large"]
)
def test_answer_that_no_protocol_can_hold_is_an_error(client: Client, pid: int, way: str) -> None:
    error = client.refusal("victim", request_id=way)
    assert error.code == "INTERNAL"
    assert int(client.infer("victim")["Y"][0]) == pid


def test_fork_that_leaves_the_execution_ends_alone(client: Client, pid: int) -> None:
    for _ in range(2):
        assert int(client.infer("victim", request_id="returns_from_a_fork")["Y"][0]) == pid


def test_fork_that_returns_from_the_execution_is_ended(client: Client, pid: int) -> None:
    assert client.infer("victim", request_id="returns_twice")["Y"].tolist() == [1]
    assert int(client.infer("victim")["Y"][0]) == pid


@pytest.mark.parametrize("way", ["answers_other_names", "answers_without_tensors"])
def test_output_that_is_missing_is_left_out(client: Client, pid: int, way: str) -> None:
    assert client.infer("victim", request_id=way).outputs == {}
