"""Constraints of the output that the engine can always compile.

The engine compiles a constraint in a step, and a step that fails takes all running requests with
it. So nothing of the client's reaches it as it is: a regular expression, choices and a checked
subset of JSON schemas become a grammar written here, and a client's own grammar is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from penstock_backends.language_model import refuse
from penstock_backends.language_model.constraints import NAME, check_constraint
from penstock_backends.openvino_genai.grammar import in_class, quoted
from penstock_backends.openvino_genai.json_grammar import json_grammar
from penstock_backends.openvino_genai.regex_cost import check_cost

_KINDS: Final = ("json", "regex", "choice")
_OF_VLLM: Final = ("grammar", "structural_tag")
_TYPES: Final = ("object", "array", "string", "integer", "number", "boolean", "null")
_NOTES: Final = ("title", "description", "default", "examples", "$schema")
_MOST: Final = 10_000
_DEEPEST: Final = 32
_LONGEST: Final = 1 << 16
"""Characters of a constraint, which are compiled in about a tenth of a second."""
_MOST_CHARACTERS: Final = 500
"""Lengths of all strings of a schema together."""
_BOUNDS: Final = frozenset(("minLength", "maxLength"))
_FORMS: Final = frozenset(("enum", "const", "anyOf"))
_CATEGORIES: Final = {
    "CATEGORY_DIGIT": "0-9",
    "CATEGORY_WORD": "a-zA-Z0-9_",
    "CATEGORY_SPACE": r" \t\n\r\f\v",
}


@dataclass(frozen=True, slots=True)
class Structure:
    """A grammar, which the engine can compile, for any kind of constraint."""

    grammar: str


def read_structure(given: Any) -> Structure | None:
    """The constraint of a request; raises `InvalidRequestError`."""
    if given is None:
        return None
    given = _json(given) if isinstance(given, str) else given
    if not isinstance(given, dict):
        refuse(NAME, "must be an object, or JSON text of one")
    kind = _kind([name for name, value in given.items() if value is not None])
    check_constraint(given)
    value = given[kind]
    _check_size(kind, value)
    if kind == "choice":
        return Structure(_choice_grammar(value))
    if kind == "regex":
        return Structure(_regex_grammar(value))
    schema = _json(value) if isinstance(value, str) else value
    _check_schema(schema, 0)
    _check_lengths(schema)
    return Structure(json_grammar(schema))


def _check_size(kind: str, value: Any) -> None:
    """Refuse a constraint that takes long to compile, as that is part of a step of all requests."""
    size = len(value) if isinstance(value, str) else len(json.dumps(value))
    if size > _LONGEST:
        refuse(NAME, f"has a {kind} of {size} characters, more than {_LONGEST} as JSON")


def _kind(names: Sequence[str]) -> str:
    for name in names:
        if name not in _KINDS:
            elsewhere = f"; the vllm backend takes '{name}', too" if name in _OF_VLLM else ""
            refuse(
                NAME,
                f"of '{name}' is not supported by the openvino_genai backend, which takes "
                f"{', '.join(_KINDS)}{elsewhere}",
            )
    if len(names) != 1:
        refuse(NAME, f"must hold one of {', '.join(_KINDS)}")
    return names[0]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        refuse(NAME, "holds text that is not JSON")


# -- choices and regular expressions ---------------------------------------------------------------


def _choice_grammar(choices: Any) -> str:
    if not isinstance(choices, list) or not choices:
        refuse(NAME, "must have a list of texts as choice")
    if not all(isinstance(choice, str) and choice for choice in choices):
        refuse(NAME, "must have texts as choice, none of them empty")
    return "root ::= " + " | ".join(quoted(choice) for choice in choices)


def _regex_grammar(pattern: Any) -> str:
    if not isinstance(pattern, str) or not pattern:
        refuse(NAME, "must have a text as regex")
    try:
        parsed = import_module("re._parser").parse(pattern)
        if parsed.state.flags & ~re.UNICODE:
            refuse(
                NAME, "has a regex with flags, which the openvino_genai backend does not support"
            )
        check_cost(list(parsed))
        return "root ::= " + _sequence(list(parsed), outermost=True)
    except (ValueError, RecursionError, OverflowError, re.error) as error:
        refuse(NAME, f"has a regex that cannot be read: {error}")


def _sequence(parts: Sequence[tuple[Any, Any]], *, outermost: bool = False) -> str:
    """A sequence of a parsed expression; anchors may stand at its outermost ends only."""
    if outermost and parts and str(parts[0][0]) == "AT":
        parts = parts[1:]
    if outermost and parts and str(parts[-1][0]) == "AT":
        parts = parts[:-1]
    return " ".join(_part(str(name), value) for name, value in parts) or '""'


def _part(name: str, value: Any) -> str:
    if name == "LITERAL":
        return quoted(chr(value))
    if name == "ANY":
        return r"[^\n]"
    if name == "NOT_LITERAL":
        return f"[^{in_class(value)}]"
    if name == "IN":
        return _class(value)
    if name == "BRANCH":
        return "(" + " | ".join(_sequence(list(branch)) for branch in value[1]) + ")"
    if name == "SUBPATTERN" and not value[1] and not value[2]:
        return f"({_sequence(list(value[3]))})"
    if name not in ("MAX_REPEAT", "MIN_REPEAT"):
        refuse(NAME, f"has a regex with {name}, which the openvino_genai backend does not support")
    return _repeat(*value)


def _repeat(low: int, high: Any, part: Any) -> str:
    inside = f"({_sequence(list(part))})"
    if str(high) == "MAXREPEAT":
        return inside + ("*", "+")[low] if low < 2 else f"{inside}{{{low},}}"
    if high > _MOST:
        refuse(NAME, f"has a regex that repeats more than {_MOST} times")
    return f"{inside}{{{low},{high}}}"


def _class(members: Sequence[tuple[Any, Any]]) -> str:
    text = ""
    for name, value in members:
        kind = str(name)
        if kind == "NEGATE":
            text = "^"
        elif kind == "LITERAL":
            text += in_class(value)
        elif kind == "RANGE":
            text += f"{in_class(value[0])}-{in_class(value[1])}"
        elif str(value) in _CATEGORIES:
            text += _CATEGORIES[str(value)]
        else:
            refuse(NAME, f"has a regex with {value} in a class, which is not supported")
    return f"[{text}]"


# -- JSON schemas ----------------------------------------------------------------------------------


_UNWRITABLE: Final = re.compile(r'["\\\x00-\x1f\x7f]')
"""Characters of names that the engine does not escape in the grammar which it makes: it dies."""


def _check_schema(schema: Any, depth: int) -> None:
    """Check that a schema uses only what the engine is known to take."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        refuse(NAME, f"must have JSON schemas that are objects, nested at most {_DEEPEST} deep")
    for name, value in schema.items():
        if name not in _NOTES:
            _check_keyword(name, value)
    if any(_UNWRITABLE.search(name) for name in schema.get("properties", {})):
        refuse(NAME, "has a property in its json with quotes, backslashes or control characters")
    if schema.get("minItems", 0) > schema.get("maxItems", _MOST):
        refuse(NAME, "has a json whose 'minItems' is above 'maxItems'")
    if schema.get("minItems") and "items" not in schema:
        refuse(NAME, "has a json with 'minItems' and without 'items'")
    _check_bounds(schema)
    parts = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    for part in [*parts, *([schema["items"]] if "items" in schema else [])]:
        _check_schema(part, depth + 1)


def _check_bounds(schema: Mapping[str, Any]) -> None:
    """Check the bounds of a string's length, which the engine keeps with its type alone."""
    given = sorted(schema.keys() & _BOUNDS)
    if given and schema.get("type") != "string":
        refuse(NAME, f"has '{given[0]}' in its json without the type string")
    if given and schema.keys() & _FORMS:
        refuse(NAME, f"has '{given[0]}' in its json beside {', '.join(sorted(_FORMS))}")
    if schema.get("minLength", 0) > schema.get("maxLength", _MOST):
        refuse(NAME, "has a json whose 'minLength' is above 'maxLength'")


def _check_lengths(schema: Any) -> None:
    """Bound the lengths of all strings together, as each costs a millisecond a character."""
    lengths, left = 0, [schema]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            lengths += max(one.get("minLength", 0), one.get("maxLength", 0))
            parts = one.get("items"), one.get("anyOf"), [*one.get("properties", {}).values()]
            left += parts
    if lengths > _MOST_CHARACTERS:
        refuse(
            NAME,
            f"has strings in its json with lengths of {lengths} together, more than "
            f"{_MOST_CHARACTERS}",
        )


def _check_keyword(name: str, value: Any) -> None:
    if name not in _KEYWORDS:
        refuse(NAME, f"has '{name}' in its json, which this backend does not support")
    if not _KEYWORDS[name](value):
        refuse(NAME, f"has a value of '{name}' in its json that is not supported")


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def _is_filled(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


_KEYWORDS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "type": lambda value: value in _TYPES,
    "properties": _is_object,
    "required": lambda value: (
        isinstance(value, list)
        and all(isinstance(name, str) and not _UNWRITABLE.search(name) for name in value)
    ),
    "items": _is_object,
    "enum": lambda value: _is_filled(value) and all(map(_is_scalar, value)),
    "const": _is_scalar,
    "anyOf": _is_filled,
    "additionalProperties": lambda value: value is False,
    "minItems": _is_count,
    "maxItems": _is_count,
    "minLength": _is_count,
    "maxLength": _is_count,
}
"""Check of the value of each supported keyword."""
