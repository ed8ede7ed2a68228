"""Regular expressions with more readings of a text than an engine can follow are found."""

from __future__ import annotations

import pytest

from penstock_backends.language_model.constraints.regex_readings import repeats_what_may_be_empty


@pytest.mark.parametrize(
    "regex",
    [
        "(a*)*b",
        "(a*)+b",
        "(a*){2,}b",
        "(a{0,100})*b",
        "(a*){0,100}b",
        "((a{0,4}){0,4})*",
        "([ab]*c?)*d",
        "(a|b*)*c",
        "((aa|a)*)*b?",
        "((ab)*)*c",
        "((a+)?)*b",
        "((a|b|)+c?)*d",
        "(?:a*)*b",
        "(?P<name>a*)*b",
        '"(a*)*"',
        "x(y(a*|b)*|z)",
        "(^a*$)*",
        "a*+",
        "(a*?)*",
        "a{0,}{0,}",
    ],
)
def test_repetition_of_what_may_be_empty_is_found(regex: str) -> None:
    assert repeats_what_may_be_empty(regex)


@pytest.mark.parametrize(
    "regex",
    [
        "",
        "(a+)+b",
        r"(\w+\s*)+",
        r"(\w+(,\w+)*)*;",
        "(a*,)*b",
        "(a?)*c",
        "(a{0,10})*b",
        "(a*){4}",
        "(a*)?",
        "a*?b+?",
        "(a+?)*",
        r"(\(*x)*",
        "([*]|[)]|[]*])*",
        r"(\**\))*x",
        "(a|b)*",
        "(.*a){30}",
        "(" * 3000,
        ")" * 3000,
        "*" * 1,
        "{}{a}{,3}",
    ],
)
def test_others_are_not(regex: str) -> None:
    assert not repeats_what_may_be_empty(regex)
