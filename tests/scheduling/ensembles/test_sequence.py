"""Correlation ids and flags on their way through an ensemble."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.errors import InvalidRequestError
from penstock.scheduling.ensembles.plan import SequenceMark

pytestmark = pytest.mark.contract("E-12", "S-21")

ASKED = SequenceMark(7, start=True)


@pytest.mark.parametrize(
    ("said", "mark"),
    [
        ({}, ASKED),
        ({"other": 1}, ASKED),
        ({"sequence_id": 9}, SequenceMark(9)),
        ({"sequence_id": "nine"}, SequenceMark("nine")),
        ({"sequence_start": True}, SequenceMark(7, start=True)),
        ({"sequence_end": True}, SequenceMark(7, end=True)),
        ({"sequence_start": False}, SequenceMark(7)),
    ],
)
def test_the_sequence_parameters_of_a_response_count(
    said: dict[str, Any], mark: SequenceMark
) -> None:
    assert ASKED.updated(said) == mark


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (
            {"sequence_id": 1.5},
            "expected parameter 'sequence_id' to be TRITONSERVER_PARAMETER_INT or "
            "TRITONSERVER_PARAMETER_STRING",
        ),
        (
            {"sequence_id": True},
            "expected parameter 'sequence_id' to be TRITONSERVER_PARAMETER_INT or "
            "TRITONSERVER_PARAMETER_STRING",
        ),
        (
            {"sequence_start": 1},
            "expect parameter 'sequence_start' to be TRITONSERVER_PARAMETER_BOOL",
        ),
        (
            {"sequence_end": "yes"},
            "expect parameter 'sequence_end' to be TRITONSERVER_PARAMETER_BOOL",
        ),
    ],
)
def test_what_is_of_a_wrong_type_is_refused(said: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        ASKED.updated(said)
    assert refused.value.message == text


@pytest.mark.parametrize(
    ("mark", "of_text", "known"),
    [
        (SequenceMark(), False, 0),
        (SequenceMark(7), False, 7),
        (SequenceMark((1 << 64) - 1), False, -1),
        (SequenceMark("s"), True, "s"),
        (SequenceMark("s"), False, 0),
        (SequenceMark(7), True, ""),
    ],
)
def test_the_response_names_the_sequence_in_the_type_of_the_request(
    mark: SequenceMark, of_text: bool, known: int | str
) -> None:
    expected = {"sequence_id": known, "sequence_start": False, "sequence_end": False}
    assert mark.parameters(of_text=of_text) == expected
