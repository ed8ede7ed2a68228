"""JSON that ends: schemas as grammars of xgrammar's, with bounds on white space and digits."""

from __future__ import annotations

import asyncio
import json
import re
from copy import copy
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from penstock_backends.language_model.constraints import MOST_DIGITS, NUMBER_RULES
from penstock_backends.vllm.internals import xgrammar_keeps_to
from penstock_backends.vllm.model_facts import ModelFacts

_UNBOUNDED: Final = re.compile(r"\b(\w+)\{(\d+), -1\}")
_DIGIT_RULE: Final = re.compile(r"^(\w+) ::= \(\(\[0-9\]\)\)$", re.MULTILINE)
_ANY_OBJECT: Final = {"type": "object"}
_MOST_KEPT: Final = 16
"""Grammars that are kept."""
_LONGEST_KEPT: Final = 1 << 16
"""Characters of a schema whose grammar is kept; a grammar has about five times as many."""


async def with_ending_json(sampling: Any, facts: ModelFacts) -> Any:
    """The sampling parameters, with a grammar in the place of a schema.

    Grammars are made on a thread, which takes 10 ms for a schema of 5 kB; the last 16 of schemas
    that are not long are kept.
    What xgrammar does not read is left to vLLM, which has other libraries for it, or says why not.
    """
    given = sampling.structured_outputs if facts.by_xgrammar else None
    if given is None or (given.json is None and not given.json_object):
        return sampling
    schema = _ANY_OBJECT if given.json is None else given.json
    grammar = await asyncio.to_thread(_grammar, schema, compact=facts.compact_json)
    if grammar is None:
        return sampling
    changed = copy(sampling)
    changed.structured_outputs = replace(given, json=None, json_object=None, grammar=grammar)
    return changed


def _grammar(schema: Any, *, compact: bool) -> str | None:
    """The grammar of a schema; `None` where xgrammar has none that means the same."""
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        make = _kept_grammar if len(text) <= _LONGEST_KEPT else _compiled
        return make(text, compact)
    except Exception:  # of releases that differ; for a schema that vLLM refuses in its own words
        return None


def _compiled(schema: str, compact: bool) -> str | None:
    """The grammar of a schema in JSON."""
    xgrammar = import_module("xgrammar")
    read = json.loads(schema)
    if not xgrammar_keeps_to(read):
        return None
    text = xgrammar.Grammar.from_json_schema(
        json.dumps(read),  # `schema` may name a key twice
        any_whitespace=False,
        separators=(",", ":") if compact else (", ", ": "),
    )
    return bounded(str(text))


_kept_grammar = lru_cache(_MOST_KEPT)(_compiled)


def bounded(grammar: str) -> str:
    """A grammar of xgrammar's in which no number is endless; counts that a schema gives stay."""
    digits = set(_DIGIT_RULE.findall(grammar))

    def count(found: re.Match[str]) -> str:
        name, least = found[1], int(found[2])
        return f"{name}{{{least}, {max(least, MOST_DIGITS - 1)}}}" if name in digits else found[0]

    lines = []
    for line in grammar.splitlines():
        name = line.partition(" ::= ")[0]
        rule = NUMBER_RULES.get(name.removeprefix("basic_")) if name.startswith("basic_") else None
        lines.append(f"{name} ::= {rule}" if rule else _UNBOUNDED.sub(count, line))
    return "\n".join(lines)
