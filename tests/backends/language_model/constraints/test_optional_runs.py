"""Parts in a row that may be left out are counted as they may be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_backends.language_model.constraints.optional_runs import grammar_run, regex_run


@pytest.mark.parametrize(
    ("regex", "run"),
    [
        ("", 0),
        ("abc", 0),
        ("ab?", 1),
        ("a?b*c{0,9}", 3),
        ("a?bc?", 1),
        ("a?b{1,9}c?", 1),
        ("(a?b?)c?", 3),
        ("(a?|b?c?)d?", 3),
        ("(a|)b?", 2),
        ("(?:a?){5}", 5),
        ("(a?b?){2,3}", 6),
        ("(a?bc?){2}", 2),
        ("(a?b?", 2),
        (r"\??[?*]{1,2}b?", 1),
        ("(((a?){99999}){99999}){99999}", 999970000299999),
    ],
)
def test_parts_of_a_regular_expression(regex: str, run: int) -> None:
    assert regex_run(regex) == run


@pytest.mark.parametrize(
    ("bodies", "run"),
    [
        ({"root": '"a?b?" [c]?'}, 1),
        ({"root": '"a"? "" "b"?'}, 2),
        ({"root": "a a a", "a": '[b] | ""'}, 3),
        ({"root": 'a "," a', "a": "[b]? [c]?"}, 2),
        ({"root": "root? root? missing?"}, 3),
    ],
)
def test_rules_count_for_what_they_stand_for(bodies: dict[str, str], run: int) -> None:
    assert grammar_run(bodies) == run


@given(st.text("ab?*+{}0,9()|[]\\"))
def test_any_text_has_a_run(text: str) -> None:
    assert regex_run(text) >= 0
    assert grammar_run({"root": text}) >= 0
