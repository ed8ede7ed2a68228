"""Grammars of JSON schemas, which end: one space at most between parts, and bounded numbers.

What the engine makes of a schema by itself lets white space and digits go on for ever. The schemas
are those that `structure` has checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock_backends.language_model.constraints import NUMBER_RULES
from penstock_backends.openvino_genai.grammar import quoted

_COMMA: Final = '"," (" ")?'
_COLON: Final = '":" (" ")?'
_NOTHING: Final = '""'
_CHARACTER: Final = r'[^"\\\x00-\x1f]'
_BASIC: Final[Mapping[str, str]] = {
    **NUMBER_RULES,
    "string": r'"\"" (' + _CHARACTER + r' | "\\" (["\\/bfnrt] | "u" [0-9A-Fa-f]{4}))* "\""',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "value": "object | array | string | number | boolean | null",
    "object": f'"{{" (string {_COLON} value ({_COMMA} string {_COLON} value)*)? "}}"',
    "array": f'"[" (value ({_COMMA} value)*)? "]"',
}
"""Rules for what a schema leaves open; `object`, `array` and `value` need all others."""
_OPEN: Final = frozenset(("value", "object", "array"))


def json_grammar(schema: Mapping[str, Any]) -> str:
    """The grammar of a schema, in the engine's notation."""
    return _Grammar().text(schema)


class _Grammar:
    """The rules of one grammar as they are found to be needed."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}

    def text(self, schema: Mapping[str, Any]) -> str:
        root = self._of(schema)
        rules = {"root": root, **self._rules}
        if not _OPEN.isdisjoint(self._rules):
            rules |= _BASIC
        return "\n".join(f"{name} ::= {body}" for name, body in rules.items())

    def _of(self, schema: Mapping[str, Any]) -> str:
        """The rule of a schema; of several keywords the engine keeps to the first here."""
        if "const" in schema:
            return _literal(schema["const"])
        if "enum" in schema:
            return _either(map(_literal, schema["enum"]))
        if "anyOf" in schema:
            return _either(map(self._of, schema["anyOf"]))
        kinds: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
        }
        kind = schema.get("type") or _implied(schema)
        return kinds[kind](schema) if kind in kinds else self._basic(kind)

    def _basic(self, name: str) -> str:
        self._rules.setdefault(name, _BASIC[name])
        return name

    def _string(self, schema: Mapping[str, Any]) -> str:
        low, high = schema.get("minLength", 0), schema.get("maxLength", "")
        if not low and high == "":
            return self._basic("string")
        return rf'"\"" {_CHARACTER}{{{low},{high}}} "\""'

    def _array(self, schema: Mapping[str, Any]) -> str:
        low, high = schema.get("minItems", 0), schema.get("maxItems")
        if "items" not in schema and high is None:
            return self._basic("array")
        if high == 0:
            return '"[" "]"'
        item = self._named(self._of(schema.get("items", {})))
        most = "" if high is None else high - 1
        items = f"{item} ({_COMMA} {item}){{{max(low - 1, 0)},{most}}}"
        return f'"[" {items} "]"' if low else f'"[" ({items})? "]"'

    def _object(self, schema: Mapping[str, Any]) -> str:
        properties = schema.get("properties", {})
        if not properties:
            closed = schema.get("additionalProperties") is False
            return '"{" "}"' if closed else self._basic("object")
        required = set(schema.get("required", ())) & properties.keys()
        begins: list[str] = []
        rest = ""  # what may follow a property, from the last one on
        for name in reversed(properties):
            value = self._named(self._of(properties[name]))
            one = f"{_literal(name)} {_COLON} {value} {rest}"
            if name in required:  # then nothing behind it can be the first
                begins = []
            begins.append(one)
            otherwise = "" if name in required else f" | {rest or _NOTHING}"
            rest = self._named(f"{_COMMA} {one}{otherwise}")
        inside = _either(reversed(begins))
        return f'"{{" {inside} "}}"' if required else f'"{{" {inside}? "}}"'

    def _named(self, body: str) -> str:
        """A rule of its own, since it is needed more than once."""
        if body in self._rules:
            return body
        name = f"r{len(self._rules)}"
        self._rules[name] = body
        return name


def _implied(schema: Mapping[str, Any]) -> str:
    """The type of a schema that names none."""
    if schema.keys() & {"properties", "additionalProperties"}:
        return "object"
    return "array" if "items" in schema else "value"


def _literal(value: Any) -> str:
    return quoted(json.dumps(value, ensure_ascii=False))


def _either(parts: Any) -> str:
    return f"({' | '.join(parts)})"
