"""Constraints for OpenVINO's engine compile, as xgrammar says, which is inside both engines."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequestError
from penstock_backends.openvino_genai.structure import read_structure

xgrammar: Any = import_module("xgrammar")
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
    if read.json_schema is not None:
        compiled = COMPILER.compile_json_schema(read.json_schema)
    else:
        compiled = COMPILER.compile_grammar(xgrammar.Grammar.from_ebnf(read.grammar))
    assert compiled is not None


def test_xgrammar_refuses_what_it_cannot_compile() -> None:
    with pytest.raises(RuntimeError):
        xgrammar.Grammar.from_ebnf('root ::= "a')
