"""Rules of a grammar are measured once each, by what they stand for."""

from __future__ import annotations

from collections.abc import Callable

from penstock_backends.language_model.constraints.grammar_rules import Rules, rule_bodies


def summed(body: str, value: Callable[[str], int]) -> int:
    return sum(value(name) for name in body.split())


def test_bodies_end_where_the_next_rule_begins() -> None:
    assert rule_bodies('root ::= a\n  "b"\na ::= [c]') == {"root": ' a\n  "b"\n', "a": " [c]"}
    assert rule_bodies("start: WORD") == {}


def test_a_rule_is_worth_what_its_body_is() -> None:
    rules = Rules({"root": "a a x", "a": "y z"}, summed, 1)
    assert rules.value("root") == 5


def test_a_rule_inside_itself_is_unknown() -> None:
    assert Rules({"root": "root root"}, summed, 1).value("root") == 2
