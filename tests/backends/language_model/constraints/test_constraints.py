"""Constraints that would take an engine minutes are refused, others pass."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.core.errors import InvalidRequestError
from penstock_backends.language_model.constraints import check_constraint

RULES = "root ::= x{1,100}\nx ::= y\ny ::= z{1,100}\nz ::= [a-z]"

DOUBLED = "\n".join(
    ["root ::= r0", *(f"r{n} ::= r{n + 1} r{n + 1}" for n in range(20)), "r20 ::= [a-z]?"]
)

PROPERTIES = {str(number): {"type": "string"} for number in range(1001)}


@pytest.mark.parametrize(
    ("structure", "why"),
    [
        ({"regex": "(a{1,100}){1,100}"}, "regex whose counted repetitions, .* come to 10000"),
        ({"regex": '"(a{1,100}){1,100}"'}, "regex whose counted repetitions, .* come to 10000"),
        ({"regex": "((a{1,20}b?){1,20}|c){20}"}, "come to 8000"),
        ({"regex": "((aa|a)*)*b?"}, "a regex that repeats what may be empty and repeats itself"),
        ({"json": {"items": {"pattern": "^(a*)*b$"}}}, "a pattern that repeats what may be empty"),
        ({"regex": r"(\(a{99}){99,}"}, "come to 9801"),
        ({"regex": "(a{1,1000000}|(b{2}){2}){5}"}, "come to 5000000"),
        ({"regex": '"((a{1,100}){1,100})"'}, "come to 10000"),
        ({"regex": "[a-z]?" * 300}, "a regex with 300 parts in a row that may be left out"),
        ({"regex": "(?:[a-z]{2})*" * 41}, "with 41 parts in a row"),
        ({"regex": "(a|)" * 41}, "with 41 parts in a row"),
        ({"regex": "(a?b{0,3}){60}"}, "with 120 parts in a row"),
        ({"json": {"pattern": "^" + "[a-z]?" * 150 + "$"}}, "a pattern with 150 parts in a row"),
        ({"grammar": "root ::= " + "[a-z]? " * 300}, "a grammar with 300 parts in a row"),
        ({"grammar": "root ::= " + "a " * 41 + '\na ::= [a-z] | ""'}, "with 41 parts in a row"),
        ({"grammar": DOUBLED}, "a grammar with 1048576 parts in a row"),
        ({"regex": "x" * 70_000}, "a regex of 70000 characters, more than 65536"),
        ({"grammar": RULES}, "grammar whose counted repetitions, .* come to 10000"),
        ({"grammar": 'root ::= ("a"{1,100} "b"){1,100}'}, "come to 10000"),
        ({"choice": ["a"] * 10_001}, "10001 choices, more than 10000"),
        ({"choice": ["a" * 300_000]}, "a choice of 300000 characters"),
        ({"json": {"properties": {"a": {"enum": list(range(20_000))}}}}, "20000 choices"),
        ({"json": json.dumps({"enum": list(range(10_001))})}, "10001 choices"),
        ({"json": {"items": [{"pattern": "^(a{1,100}){1,100}$"}]}}, "pattern whose counted"),
        ({"json": {"properties": PROPERTIES}}, "a json with more than 1000 properties"),
        (
            {"json": {"items": {"minProperties": 1, "properties": PROPERTIES}}},
            "'minProperties' and 1001 properties, more than 100",
        ),
        ({"json": "[" * 100_000}, "nested too deeply"),
        ({"json": " " * 300_000}, "a json of 300000 characters"),
    ],
)
def test_what_would_take_minutes_is_refused(structure: dict[str, Any], why: str) -> None:
    with pytest.raises(
        InvalidRequestError, match=f"sampling parameter 'structured_outputs' .*{why}"
    ):
        check_constraint(structure)


@pytest.mark.parametrize(
    "structure",
    [
        {},
        {"regex": "[0-9]{5}-[a-z]{1,100000}"},
        {"regex": r"([0-9]{1,3}\.){3}[0-9]{1,3}"},
        {"regex": r"[(]{1,100}[)]{1,100}\{9{1,100}"},
        {"regex": "a?" * 40},
        {"regex": "(?:,?-?b?c)*" * 30},
        {"regex": r"P(\d+Y)?(\d+M)?(\d+D)?(T(\d+H)?(\d+M)?(\d+S)?)?"},
        {"regex": ".{0,60000}"},
        {"grammar": "root ::= " + 'ws? "," ' * 300 + "\nws ::= [ ]*"},
        {"regex": "(" * 3000},
        {"regex": ")" * 3000},
        {"grammar": 'root ::= "{" ws{0,200} "}"\nws ::= " " root?'},
        {"regex": "[a-z]{1,100000}(b{2}){2}"},
        {"grammar": "root ::= root{1,99} root{1,99}"},
        {"grammar": "start: WORD"},
        {"choice": ["yes", "no"]},
        {"json": {"type": "array", "maxItems": 100, "items": {"maxLength": 1000}}},
        {"json": {"properties": {"a": {"minProperties": 1}, "b": {"properties": 1}}}},
        {"json": "{"},
        {"json": 7, "regex": 1, "choice": "a", "grammar": None},
    ],
)
def test_others_pass(structure: dict[str, Any]) -> None:
    assert check_constraint(structure) is None  # type: ignore[func-returns-value]
