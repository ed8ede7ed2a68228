"""Constraints of the output: what the engine keeps to, and what never reaches it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from backends.openvino_genai.asking import ask, opened
from penstock.core.errors import InvalidRequestError
from penstock.testing import RunningInstance
from penstock_backends.openvino_genai.structure import Structure, read_structure

pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")

one_engine = pytest.mark.asyncio(loop_scope="module")

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["file", "list"]}, "odd": {"type": "boolean"}},
    "required": ["kind", "odd"],
    "additionalProperties": False,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def instance(gguf_version: Path) -> AsyncIterator[RunningInstance]:
    """One engine for all: to open it takes longer than to ask it."""
    async with opened(gguf_version) as instance:
        yield instance


@pytest.mark.parametrize(
    "pattern",
    [
        "[0-9]{5}",
        r"^(yes|no) \"\\ [^a-z\d_]{2,3}$",
        r"(ab)+c?[\w.-]{4}@\s\u00e9",
        r"a|b|[]^-]{3}",
        ".{3}x?y{2,3}?",
        "[^x]",
    ],
)
@one_engine
async def test_a_regular_expression_is_kept_to(instance: RunningInstance, pattern: str) -> None:
    sampling: Any = {
        "ignore_eos": False,
        "max_tokens": 40,
        "structured_outputs": {"regex": pattern},
    }
    assert re.match(f"(?:{pattern})", (await ask(instance, **sampling)).text)


@one_engine
async def test_a_choice_is_kept_to(instance: RunningInstance) -> None:
    choices = ['say "yes"', "née\n", "\\d"]
    structure = json.dumps({"choice": choices})
    reply = await ask(instance, ignore_eos=False, structured_outputs=structure, max_tokens=40)
    assert reply.text in choices


@pytest.mark.parametrize("encode", [dict, json.dumps])
@one_engine
async def test_a_schema_is_kept_to(instance: RunningInstance, encode: Any) -> None:
    kinds = ["file", "list", 7, None, True]
    structure = {"json": encode({"enum": kinds})}
    reply = await ask(instance, ignore_eos=False, structured_outputs=structure, max_tokens=40)
    assert json.loads(reply.text) in kinds


@pytest.mark.parametrize(
    ("bounds", "kept"),
    [
        ({"minLength": 3, "maxLength": 5}, lambda value: 3 <= len(value) <= 5),
        ({"maxLength": 0}, lambda value: value == ""),
    ],
)
@one_engine
async def test_lengths_of_strings_are_kept_to(
    instance: RunningInstance, bounds: Any, kept: Any
) -> None:
    structure = {"json": {"type": "string", **bounds}}
    reply = await ask(instance, ignore_eos=False, structured_outputs=structure, max_tokens=40)
    assert kept(json.loads(reply.text))


@one_engine
async def test_an_object_ends_though_the_model_is_fond_of_white_space(
    instance: RunningInstance,
) -> None:
    structure = {"json": SCHEMA}
    reply = await ask(instance, ignore_eos=False, structured_outputs=structure, max_tokens=120)
    assert json.loads(reply.text)["kind"] in ("file", "list")


@pytest.mark.parametrize("kind", ["integer", "number"])
@one_engine
async def test_a_number_ends(instance: RunningInstance, kind: str) -> None:
    structure = {"json": {"type": kind}}
    reply = await ask(instance, ignore_eos=False, structured_outputs=structure, max_tokens=120)
    json.loads(reply.text)
    assert len(re.findall("[0-9]", reply.text)) <= 20


@pytest.mark.parametrize(
    ("structure", "why"),
    [
        ("{", "holds text that is not JSON"),
        (7, "must be an object"),
        ({}, "must hold one of json, regex, choice"),
        ({"json": {}, "regex": "a"}, "must hold one of"),
        (
            {"grammar": 'root ::= "a"'},
            "of 'grammar' .* takes json, regex, choice; the vllm backend",
        ),
        (
            {"structural_tag": "{}"},
            "of 'structural_tag' .* the vllm backend takes 'structural_tag'",
        ),
        ({"lark": "a"}, "of 'lark' is not supported by .* which takes json, regex, choice$"),
        ({"regex": "[0-"}, "a regex that cannot be read"),
        ({"regex": ""}, "a text as regex"),
        ({"regex": "(?=a)b"}, "regex with ASSERT"),
        ({"regex": r"(a)\1"}, "regex with GROUPREF"),
        ({"regex": r"a\bc"}, "regex with AT"),
        ({"regex": "(?i)a"}, "regex with flags"),
        ({"regex": "a{99999}"}, "more than 10000 times"),
        ({"regex": "(a{1,100}){1,100}"}, "come to 10000"),
        ({"regex": "(a|b)*-" * 65}, "65 unbounded repetitions, such as 'a\\*', more than 64"),
        ({"regex": "((x|a+)b){70}"}, "70 unbounded repetitions"),
        ({"regex": "[a-z ]?-" * 41}, "41 repetitions, .* of 41 parts"),
        ({"regex": "[a-z ]{0,30}" * 5}, "5 repetitions, .* of 150 parts that may be left out"),
        ({"regex": "(x|([a-z]{1,4}y?)){14}"}, "28 repetitions, .* of 56 parts"),
        ({"regex": ".{0,257}"}, "1 repetitions, .* of 257 parts"),
        ({"choice": ["a choice"] * 9000}, "a choice of 108000 characters, more than 65536"),
        ({"choice": []}, "a list of texts as choice"),
        ({"choice": [""]}, "none of them empty"),
        ({"choice": ["\ud800"]}, "half of a surrogate pair"),
        ({"json": "{"}, "holds text that is not JSON"),
        ({"json": {"$ref": "#/a"}}, "has '\\$ref' in its json"),
        ({"json": {"type": "float"}}, "a value of 'type' in its json"),
        ({"json": {"properties": {'a"b': {"type": "null"}}}}, "a property in its json with quotes"),
        ({"json": {"properties": {"\0": {"type": "null"}}}}, "a property in its json with quotes"),
        ({"json": {"anyOf": [{"required": ["a\n"]}]}}, "a value of 'required' in its json"),
        ({"json": {"minItems": 3, "maxItems": 2}}, "'minItems' is above 'maxItems'"),
        ({"json": {"minItems": 3}}, "'minItems' and without 'items'"),
        ({"json": {"items": {"pattern": "["}}}, "has 'pattern' in its json"),
        ({"json": {"type": "integer", "minimum": 0}}, "has 'minimum' in its json"),
        ({"json": {"maxLength": 2}}, "'maxLength' in its json without the type string"),
        ({"json": {"type": "string", "maxLength": 2, "enum": ["a"]}}, "'maxLength' .* beside"),
        ({"json": {"type": "string", "minLength": 3, "maxLength": 2}}, "'minLength' is above"),
        ({"json": {"items": {"type": "string", "maxLength": 501}}}, "lengths of 501 together"),
    ],
)
@one_engine
async def test_what_the_engine_might_break_on_is_refused(
    instance: RunningInstance, structure: Any, why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=f"'structured_outputs' .*({why})"):
        await ask(instance, structured_outputs=structure)
    assert (await ask(instance, max_tokens=2)).finals[-1]


def test_no_constraint_is_none() -> None:
    assert read_structure(None) is None
    assert read_structure({"choice": ["a-b"]}) == Structure('root ::= "a\\U0000002db"')
