"""Bounds on constraints of the output: what would take an engine minutes is refused before it.

Engines compile a constraint to an automaton. A counted repetition inside a counted repetition
(`(a{1,100}){1,100}`), a long row of parts that may be left out (`a?a?a?`), repetitions of what may
be empty (`(a*)*`) and tens of thousands of alternatives cost seconds to minutes a token, in which
nobody else is served.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from penstock_backends.language_model.constraints.grammar_rules import Rules, rule_bodies
from penstock_backends.language_model.constraints.optional_runs import grammar_run, regex_run
from penstock_backends.language_model.constraints.regex_readings import repeats_what_may_be_empty
from penstock_backends.language_model.parameters import refuse

NAME: Final = "structured_outputs"

_LONGEST: Final = 1 << 16
"""Characters of a regular expression or a grammar."""
_LONGEST_JSON: Final = 1 << 18
_MOST_CHOICES: Final = 10_000
_MOST_PROPERTIES: Final = 1000
_MOST_COUNTED: Final = 100
"""Properties of an object that must have so many: a state for each and each number of others."""
_MOST_REPEATED: Final = 1000
"""How often the inside of nested counted repetitions may occur."""
_ENDLESS: Final = 1 << 60
_MOST_OPTIONAL: Final = 40
"""Parts in a row that may be left out."""

_EITHER = r"\\.|\[(?:\\.|[^\]\\])*\]|\{(?P<low>\d+)(?P<comma>,)?(?P<high>\d*)\}"
_REGEX_TOKEN = re.compile(rf"{_EITHER}|.", re.DOTALL)
_GRAMMAR_TOKEN = re.compile(
    rf"""{_EITHER}|"(?:\\.|[^"\\])*"|(?P<name>[A-Za-z_][\w-]*)|.""", re.DOTALL
)

_Nest = tuple[int, int]
"""The largest product of counts along a chain of repetitions inside each other, 1 without any; and
of chains of several, 0 without."""

_NO_NEST: Final = (1, 0)


def check_constraint(structure: Mapping[str, Any]) -> None:
    """Check the constraints of a request; raises `InvalidRequestError`.

    Values of a wrong type are the engine's to refuse.
    """
    for name in ("regex", "grammar", "structural_tag"):
        if isinstance(structure.get(name), str):
            _check_length(name, structure[name], _LONGEST)
    if isinstance(structure.get("regex"), str):
        _check_regex("regex", structure["regex"])
    if isinstance(structure.get("grammar"), str):
        _check_nest("grammar", _grammar_nest(structure["grammar"]))
        _check_run("grammar", grammar_run(rule_bodies(structure["grammar"])))
    choices = structure.get("choice")
    if isinstance(choices, list):
        _check_choices(choices)
        _check_length("choice", "".join(str(choice) for choice in choices), _LONGEST_JSON)
    _check_schema(structure.get("json"))


def _check_length(name: str, text: str, most: int) -> None:
    if len(text) > most:
        refuse(NAME, f"has a {name} of {len(text)} characters, more than {most}")


def _check_choices(choices: list[Any]) -> None:
    if len(choices) > _MOST_CHOICES:
        refuse(NAME, f"has {len(choices)} choices, more than {_MOST_CHOICES}")


def _check_regex(name: str, regex: str) -> None:
    _check_nest(name, _nest(regex, _REGEX_TOKEN))
    _check_run(name, regex_run(regex))
    if repeats_what_may_be_empty(regex):
        refuse(
            NAME,
            f"has a {name} that repeats what may be empty and repeats itself, such as '(a*)*', "
            "which takes longer with each token: write '(a+)*'",
        )


def _check_nest(name: str, nest: _Nest) -> None:
    product = nest[1]
    if product > _MOST_REPEATED:
        refuse(
            NAME,
            f"has a {name} whose counted repetitions, one inside the other, come to {product}, "
            f"more than {_MOST_REPEATED}",
        )


def _check_run(name: str, run: int) -> None:
    if run > _MOST_OPTIONAL:
        refuse(
            NAME,
            f"has a {name} with {run} parts in a row that may be left out, such as 'a?' or 'a*', "
            f"more than {_MOST_OPTIONAL}",
        )


def _check_schema(schema: Any) -> None:
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        _check_length("json", text, _LONGEST_JSON)
        given = json.loads(text) if isinstance(schema, str) else schema
    except RecursionError:
        refuse(NAME, "has a json that is nested too deeply")
    except ValueError:
        return
    properties = 0
    for part in _parts(given):
        properties += _count_properties(part)
        if properties > _MOST_PROPERTIES:
            refuse(NAME, f"has a json with more than {_MOST_PROPERTIES} properties")
        if isinstance(part.get("enum"), list):
            _check_choices(part["enum"])
        if isinstance(part.get("pattern"), str):
            _check_regex("pattern", part["pattern"])


def _count_properties(part: Mapping[str, Any]) -> int:
    """The properties of one object of a schema; few, if it says how many there must be."""
    properties = part.get("properties")
    count = len(properties) if isinstance(properties, dict) else 0
    bounds = [name for name in ("minProperties", "maxProperties") if name in part]
    if bounds and count > _MOST_COUNTED:
        refuse(
            NAME,
            f"has a json with '{bounds[0]}' and {count} properties, more than {_MOST_COUNTED}",
        )
    return count


def _parts(given: Any) -> Iterator[Mapping[str, Any]]:
    """All objects inside a schema."""
    left = [given]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield one
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)


def _grammar_nest(grammar: str) -> _Nest:
    """The deepest nest of a grammar; rules count for what they stand for."""
    bodies = rule_bodies(grammar)
    rules = Rules(bodies, _rule_nest, _NO_NEST)
    return _largest(*(rules.value(name) for name in bodies)) if bodies else _rule_nest(grammar)


def _rule_nest(body: str, rule: Callable[[str], _Nest] | None = None) -> _Nest:
    return _nest(body, _GRAMMAR_TOKEN, rule)


def _nest(text: str, tokens: re.Pattern[str], rule: Callable[[str], _Nest] | None = None) -> _Nest:
    """The deepest nest of counted repetitions in a regular expression or the body of a rule."""
    groups: list[_Nest] = [_NO_NEST]
    last: _Nest = _NO_NEST  # of what comes before a count
    for token in tokens.finditer(text):
        one, found = token[0], token.groupdict()
        if one == "(":
            groups.append(_NO_NEST)
            last = _NO_NEST
        elif one == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] = _largest(groups[-1], last)
        elif token["low"] is not None:
            last = _repeated(last, int((token["high"] or token["low"])[:9]))
            groups[-1] = _largest(groups[-1], last)
        elif not one.isspace():
            name = found.get("name")
            last = rule(name) if rule is not None and name else _NO_NEST
            groups[-1] = _largest(groups[-1], last)
    return _largest(*groups)


def _repeated(inside: _Nest, count: int) -> _Nest:
    chain, nested = inside
    product = min(chain * max(count, 1), _ENDLESS)
    return product, product if chain > 1 else nested


def _largest(*nests: _Nest) -> _Nest:
    return max(nest[0] for nest in nests), max(nest[1] for nest in nests)
