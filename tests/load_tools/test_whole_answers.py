"""The scenario of whole answers: what it makes of times that are given."""

from __future__ import annotations

from itertools import chain, repeat

import pytest
from loadtest.llm_scenarios.whole_answers import compared
from loadtest.llm_subjects import Found, Subject, Work
from loadtest.random_llms import MODELS


def _subject(name: str, *times: float, rival: str = "") -> Subject:
    """Whole answers that take so long, one turn after the other."""
    found = chain.from_iterable(repeat(times))

    def measure(_: Work) -> Found:
        return {"whole_p50": next(found), "front": 2.0}

    return Subject(name, measure, {"vllm": rival} if rival else {})


def test_answers_are_compared_with_those_of_their_own_turn() -> None:
    """A machine that is slow for one turn makes the answers of all slow."""
    subjects = [
        _subject("engine", 10, 30, 12),
        _subject("peer", 14, 40, 16),
        _subject("ours", 11, 31, 12.5, rival="peer"),
    ]
    *_, ours = compared(MODELS[0], subjects, Work(1, 1, 32), turns=3)
    assert ours["p50 ms"] == 12.5
    assert ours["+ms"] == 1
    assert ours["of vllm"] == pytest.approx(12.5 / 16)
    assert ours["front us"] == 64
