"""Grammars of xgrammar's, in which no number is endless; the library itself is asked in `real`."""

from __future__ import annotations

from types import SimpleNamespace

from penstock_backends.language_model.constraints import NUMBER_RULES
from penstock_backends.vllm.inputs.ending_json import bounded, with_ending_json
from penstock_backends.vllm.model_facts import ModelFacts


def test_rules_of_numbers_are_our_own() -> None:
    text = 'basic_integer ::= (("0") | ([1-9] [0-9]*))\nroot ::= ((basic_integer))'
    rule, root = bounded(text).splitlines()
    assert rule == f"basic_integer ::= {NUMBER_RULES['integer']}"
    assert root == "root ::= ((basic_integer))"


def test_digits_without_end_are_bounded_and_counts_of_a_schema_stay() -> None:
    digit, text = "d ::= (([0-9]))", "t ::= (([a-z]))"
    rules = bounded(f"{digit}\n{text}\nroot ::= ((d{{1, -1}} d{{40, -1}} d{{40, 50}} t{{0, -1}}))")
    assert rules.splitlines()[2] == "root ::= ((d{1, 19} d{40, 40} d{40, 50} t{0, -1}))"


def test_constraints_for_other_libraries_stay_as_they_are() -> None:
    sampling = SimpleNamespace(structured_outputs=SimpleNamespace(json={}, json_object=None))
    assert with_ending_json(sampling, ModelFacts(by_xgrammar=False)) is sampling
