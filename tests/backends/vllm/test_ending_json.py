"""Grammars of xgrammar's, in which no number is endless; the library itself is asked in `real`."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

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


async def test_constraints_for_other_libraries_stay_as_they_are() -> None:
    sampling = SimpleNamespace(structured_outputs=SimpleNamespace(json={}, json_object=None))
    assert await with_ending_json(sampling, ModelFacts(by_xgrammar=False)) is sampling


@dataclass
class Constraint:
    """The fields of vLLM's `StructuredOutputsParams` that matter here."""

    json: Any = None
    json_object: bool | None = None
    grammar: str | None = None


class Xgrammar:
    """The library's door: the grammar of a schema is its text and form, and they are kept."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.threads: set[int] = set()
        self.Grammar = self  # the name is the library's

    def from_json_schema(self, schema: str, *, any_whitespace: bool, separators: Any) -> str:
        self.made.append(schema)
        self.threads.add(threading.get_ident())
        return f"root ::= {separators} {schema}"

    @staticmethod
    def has_xgrammar_unsupported_json_features(schema: Any) -> bool:
        return False


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Xgrammar:
    library = Xgrammar()
    for name in ("xgrammar", "vllm.v1.structured_output.backend_xgrammar"):
        monkeypatch.setitem(sys.modules, name, library)
    return library


async def grammar_of(schema: Any, *, compact: bool = False) -> str:
    sampling = SimpleNamespace(structured_outputs=Constraint(json=schema))
    facts = ModelFacts(by_xgrammar=True, compact_json=compact)
    constraint = (await with_ending_json(sampling, facts)).structured_outputs
    assert constraint.json is None
    return str(constraint.grammar)


async def test_the_grammar_of_a_schema_is_made_once_and_off_the_event_loop(
    library: Xgrammar,
) -> None:
    schema = {"const": "made once"}
    first = await grammar_of(schema)
    assert await grammar_of(json.dumps(schema)) == first
    assert await grammar_of(schema, compact=True) != first
    assert library.made == [json.dumps(schema)] * 2
    assert threading.get_ident() not in library.threads


@pytest.mark.parametrize(("others", "size", "times"), [(15, 0, 1), (16, 0, 2), (0, 1 << 16, 2)])
async def test_grammars_of_the_last_few_schemas_that_are_not_long_are_kept(
    library: Xgrammar, others: int, size: int, times: int
) -> None:
    schema = {"const": f"kept {others} {size} " + "x" * size}
    await grammar_of(schema)
    for number in range(others):
        await grammar_of({"const": f"{number} of {others}"})
    await grammar_of(schema)
    assert library.made.count(json.dumps(schema)) == times
