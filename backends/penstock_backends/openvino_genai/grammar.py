"""Grammars: their nodes, and how the engine reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from penstock_backends.language_model import refuse
from penstock_backends.language_model.constraints import NAME


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A literal, not empty."""

    value: str


@dataclass(frozen=True, slots=True, eq=False)
class Class:
    """One character of, or with `negated` outside, inclusive ranges of code points."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    name: str
    line: int


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """Parts one after the other; none match the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    parts: tuple[Node, ...]
    line: int


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """`low` to `high` times the same; without end where `high` is `None`."""

    part: Node
    low: int
    high: int | None
    line: int


Node = Text | Class | Reference | Sequence | Choice | Repeat


def refuse_grammar(line: int, why: str) -> NoReturn:
    """Refuse a grammar for what stands in a line, counted from 1."""
    refuse(NAME, f"has a grammar that is not supported: line {line} {why}")


def quoted(text: str) -> str:
    """A literal of the engine's notation."""
    if any(0xD800 <= ord(character) < 0xE000 for character in text):
        refuse(NAME, "holds half of a surrogate pair")
    return '"' + "".join(in_class(ord(character)) for character in text) + '"'


def in_class(code: int) -> str:
    """A character of the engine's notation, in a literal or a class."""
    return chr(code) if chr(code).isalnum() and code < 128 else f"\\U{code:08x}"


def written(rules: Mapping[str, Node]) -> str:
    """The grammar for the engine, whose rules have names of our own."""
    names = {name: name if name == "root" else f"r{at}" for at, name in enumerate(rules)}
    return "\n".join(f"{names[name]} ::= {_written(node, names)}" for name, node in rules.items())


def _written(node: Node, names: Mapping[str, str]) -> str:
    match node:
        case Text(value):
            return quoted(value)
        case Class(ranges, negated):
            inside = "".join(f"{in_class(low)}-{in_class(high)}" for low, high in ranges)
            return f"[{'^' * negated}{inside}]"
        case Reference(name):
            return names[name]
        case Sequence(parts):
            return " ".join(_written(part, names) for part in parts) or '""'
        case Choice(parts):
            return "(" + " | ".join(_written(part, names) for part in parts) + ")"
        case Repeat(part, low, high):
            count = {(0, 1): "?", (0, None): "*", (1, None): "+"}.get((low, high))
            high_text = "" if high is None else str(high)
            return f"({_written(part, names)})" + (count or f"{{{low},{high_text}}}")
