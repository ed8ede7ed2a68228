"""Constraints for OpenVINO's engine compile, as xgrammar says, which is inside both engines."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequestError
from penstock_backends.openvino_genai.structure import read_structure
from penstock_backends.vllm.inputs.ending_json import with_ending_json
from penstock_backends.vllm.model_facts import ModelFacts

xgrammar: Any = import_module("xgrammar")
parameters: Any = import_module("vllm.sampling_params")
accepts: Any = import_module("xgrammar.testing")._is_grammar_accept_string
VOCABULARY = [chr(code) for code in range(32, 127)]
COMPILER = xgrammar.GrammarCompiler(
    xgrammar.TokenizerInfo(VOCABULARY, vocab_size=len(VOCABULARY), stop_token_ids=[0]),
    max_threads=1,
)
TEXTS = st.text("ab01(){}[]|*+?.^$\\-,\"' \n\u00e9dwsDWS:<>=!#", max_size=14)
SCALARS: Any = st.none() | st.booleans() | st.integers(-9, 9) | TEXTS
TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])
SCHEMAS: Any = st.recursive(
    st.fixed_dictionaries({}, optional={"type": TYPES, "enum": st.lists(SCALARS, max_size=3)}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES,
            "const": SCALARS,
            "properties": st.dictionaries(st.sampled_from(["a", "b", '"', ""]), inner, max_size=3),
            "required": st.lists(st.sampled_from(["a", "b", "z"]), max_size=2),
            "items": inner,
            "anyOf": st.lists(inner, max_size=2),
            "additionalProperties": st.just(False),
            "minItems": st.integers(0, 3),
            "maxItems": st.integers(0, 3),
        },
    ),
    max_leaves=6,
)
STRUCTURES: Any = (
    st.fixed_dictionaries({"regex": TEXTS})
    | st.fixed_dictionaries({"choice": st.lists(TEXTS, max_size=4)})
    | st.fixed_dictionaries({"json": SCHEMAS})
)


@settings(max_examples=800, deadline=None, suppress_health_check=list(HealthCheck))
@given(STRUCTURES)
def test_what_is_not_refused_compiles(structure: dict[str, Any]) -> None:
    read = None
    with suppress(InvalidRequestError):
        read = read_structure(structure)
    assume(read is not None)
    assert read is not None
    assert COMPILER.compile_grammar(xgrammar.Grammar.from_ebnf(read.grammar)) is not None


def test_xgrammar_refuses_what_it_cannot_compile() -> None:
    with pytest.raises(RuntimeError):
        xgrammar.Grammar.from_ebnf('root ::= "a')


OBJECT: Any = {
    "type": "object",
    "properties": {
        "number": {"type": "number"},
        "whole": {"type": "integer"},
        "text": {"type": "string"},
        "some": {"type": "array", "items": {"enum": ["a", 1, None]}, "minItems": 1},
    },
    "required": ["whole"],
}
ENDING = [
    (OBJECT, '{"whole": 12345678901234567890}', True),
    (
        OBJECT,
        '{"number": -0.1234567890123456e-10, "whole": 0, "text": "\\n", "some": ["a", 1]}',
        True,
    ),
    (OBJECT, '{"number": 123456.25, "whole": -1, "some": [null]}', True),
    (OBJECT, '{"whole": 1,  "text": ""}', False),
    (OBJECT, '{"whole": 1 }', False),
    (OBJECT, '{\n"whole": 1}', False),
    (OBJECT, '{"whole": 123456789012345678901}', False),
    (OBJECT, '{"number": 0.123456789012345678901, "whole": 1}', False),
    (OBJECT, '{"number": 1e1000, "whole": 1}', False),
    (OBJECT, '{"number": 1}', False),
    (OBJECT, '{"whole": 1, "some": []}', False),
    ({"type": "object"}, '{"a": [1, {"b": [true, null, "c"]}], "d": {}}', True),
    ({"type": "object"}, '{"a":\t1}', False),
    ({}, "[1, 2.5, []]", True),
    ({"type": "array", "maxItems": 2, "items": {"type": "boolean"}}, "[true, false]", True),
    ({"type": "array", "maxItems": 2, "items": {"type": "boolean"}}, "[true, false, true]", False),
    ({"type": "array", "maxItems": 0}, "[]", True),
    ({"type": "object", "additionalProperties": False}, "{}", True),
    ({"anyOf": [{"type": "string", "minLength": 2}, {"const": 7}]}, '"ab"', True),
    ({"anyOf": [{"type": "string", "minLength": 2}, {"const": 7}]}, '"a"', False),
]


@pytest.mark.parametrize(("schema", "text", "kept"), ENDING)
def test_json_of_openvinos_grammars_ends(schema: Any, text: str, kept: bool) -> None:
    read = read_structure({"json": schema})
    assert read is not None
    assert accepts(xgrammar.Grammar.from_ebnf(read.grammar), text) is kept


@pytest.mark.parametrize("given", [dict, json.dumps])
@pytest.mark.parametrize(("schema", "text", "kept"), ENDING)
def test_json_of_vllms_grammars_ends(schema: Any, text: str, kept: bool, given: Any) -> None:
    assert accepts(xgrammar.Grammar.from_ebnf(_ending(json=given(schema)).grammar), text) is kept


def test_any_object_of_vllm_ends() -> None:
    grammar = xgrammar.Grammar.from_ebnf(_ending(json_object=True).grammar)
    assert accepts(grammar, '{"a": 1}')
    assert not accepts(grammar, '{"a":  1}')


def test_a_bound_on_one_side_leaves_no_endless_digits() -> None:
    grammar = xgrammar.Grammar.from_ebnf(_ending(json={"type": "integer", "minimum": 5}).grammar)
    assert [accepts(grammar, text) for text in ("5", "4", "9" * 19, "9" * 30)] == [
        True,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("schema", [{"type": "array", "uniqueItems": True}, "{", {"type": "what"}])
def test_what_xgrammar_does_not_read_is_left_to_vllm(schema: Any) -> None:
    left = _ending(json=schema)
    assert (left.json, left.grammar) == (schema, None)


@pytest.mark.parametrize("given", [{"regex": "a"}, {"choice": ["a"]}])
def test_other_constraints_stay_as_they_are(given: Any) -> None:
    left = _ending(**given)
    assert {name: getattr(left, name) for name in given} == given


def test_compact_json_has_no_white_space() -> None:
    text = _ending(compact=True, json={"type": "array", "items": {"type": "null"}}).grammar
    grammar = xgrammar.Grammar.from_ebnf(text)
    assert accepts(grammar, "[null,null]")
    assert not accepts(grammar, "[null, null]")


def _ending(*, compact: bool = False, **given: Any) -> Any:
    """The constraint that vLLM gets."""
    sampling = parameters.SamplingParams(
        structured_outputs=parameters.StructuredOutputsParams(**given)
    )
    facts = ModelFacts(by_xgrammar=True, compact_json=compact)
    return asyncio.run(with_ending_json(sampling, facts)).structured_outputs
