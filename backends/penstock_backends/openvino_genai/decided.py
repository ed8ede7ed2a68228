"""Grammars in which the next character always decides: what the engine can follow in time.

The engine follows all readings of a text at once. Where several fit, compiling takes seconds or
minutes (64 times `[a-z]?`: 4 s), and so does a step of an ambiguous rule
(`root ::= [a-z] root root | [a-z]`: 19 s after 400 tokens). So a grammar must be LL(1) in
characters: FIRST and FOLLOW of compiler construction show that no two readings ever fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from operator import or_
from typing import Final

from penstock_backends.language_model import refuse
from penstock_backends.language_model.constraints import NAME
from penstock_backends.openvino_genai.grammar import (
    Choice,
    Class,
    Node,
    Reference,
    Repeat,
    Sequence,
    Text,
    refuse_grammar,
)

_LARGEST: Final = 8192
"""Characters of all literals; a class or a reference is as many as `_CLASS`."""
_CLASS: Final = 32
_HIGHEST: Final = 0x10FFFF
_USUAL: Final = ord("a")
"""The example of a character, where it is one."""


def check_decided(rules: Mapping[str, Node]) -> None:
    """Check the rules of a grammar; raises `InvalidRequestError`."""
    if "root" not in rules:
        refuse(NAME, "has a grammar without a rule 'root'")
    size = sum(map(_size, rules.values()))
    if size > _LARGEST:
        refuse(
            NAME,
            f"has a grammar of the size {size}, more than {_LARGEST}: a character of a literal is "
            f"1, a class or reference {_CLASS}, each as often as it is repeated",
        )
    for node in rules.values():
        for reference in _references(node):
            if reference.name not in rules:
                refuse_grammar(reference.line, f"has no rule of its name '{reference.name[:80]}'")
    _Check(rules).run()


def _size(node: Node) -> int:
    match node:
        case Text(value):
            return len(value)
        case Sequence(parts) | Choice(parts):
            return sum(map(_size, parts))
        case Repeat(part, low, high):
            return _size(part) * max(low + 1 if high is None else high, 1)
        case _:
            return _CLASS


def _references(node: Node) -> Iterable[Reference]:
    match node:
        case Reference():
            yield node
        case Sequence(parts) | Choice(parts):
            for part in parts:
                yield from _references(part)
        case Repeat(part):
            yield from _references(part)


class _Check:
    """Sets of characters are bits, one for each stretch that no class or literal divides."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._rules = rules
        self._nullable = dict.fromkeys(rules, False)
        self._first: dict[str, int] = {}
        self._follow = dict.fromkeys(rules, 0)
        self._cuts = _cuts(rules.values())
        self._sets: dict[int, int] = {}

    def run(self) -> None:
        while self._grow_nullable():
            pass
        for name in self._order():
            self._first[name] = self._begins(self._rules[name])
        while self._grow_follow():
            pass
        for name, rule in self._rules.items():
            for node, follow in self._places(rule, self._follow[name]):
                if isinstance(node, Choice):
                    self._check_choice(node, follow)
                elif isinstance(node, Repeat):
                    self._check_repeat(node, follow)

    def _grow_nullable(self) -> bool:
        grown = False
        for name, node in self._rules.items():
            if not self._nullable[name] and self._empty(node):
                self._nullable[name] = grown = True
        return grown

    def _grow_follow(self) -> bool:
        before = dict(self._follow)
        for name, rule in self._rules.items():
            for node, follow in self._places(rule, self._follow[name]):
                if isinstance(node, Reference):
                    self._follow[node.name] |= follow
        return before != self._follow

    def _order(self) -> list[str]:
        """The rules, each after those that may begin it."""
        begun = {name: set(self._beginning(node)) for name, node in self._rules.items()}
        try:
            return list(TopologicalSorter(begun).static_order())
        except CycleError as error:
            refuse(NAME, f"has a grammar whose rule '{error.args[1][0][:80]}' begins with itself")

    def _beginning(self, node: Node) -> Iterable[str]:
        """The rules that may begin a node."""
        match node:
            case Reference(name):
                yield name
            case Choice(parts):
                for part in parts:
                    yield from self._beginning(part)
            case Repeat(part):
                yield from self._beginning(part)
            case Sequence(parts):
                for part in parts:
                    yield from self._beginning(part)
                    if not self._empty(part):
                        return

    def _empty(self, node: Node) -> bool:
        """Whether a node matches the empty text."""
        match node:
            case Reference(name):
                return self._nullable[name]
            case Choice(parts):
                return any(map(self._empty, parts))
            case Sequence(parts):
                return all(map(self._empty, parts))
            case Repeat(part, low):
                return low == 0 or self._empty(part)
            case _:
                return False

    def _begins(self, node: Node) -> int:
        """FIRST: the characters that a node may begin with."""
        known = self._sets.get(id(node))
        if known is None:
            self._sets[id(node)] = known = self._find_begins(node)
        return known

    def _find_begins(self, node: Node) -> int:
        match node:
            case Choice(parts):
                return self._union(parts)
            case Sequence(parts):
                end = next((n for n, part in enumerate(parts, 1) if not self._empty(part)), None)
                return self._union(parts[:end])
            case Repeat(part):
                return self._begins(part)
            case Reference(name):
                return self._first[name]
            case Text(value):
                return self._bits(ord(value[0]), ord(value[0]))
            case Class():
                return self._members(node)

    def _union(self, parts: Iterable[Node]) -> int:
        return reduce(or_, map(self._begins, parts), 0)

    def _members(self, node: Class) -> int:
        inside = reduce(or_, (self._bits(low, high) for low, high in node.ranges), 0)
        return self._bits(0, _HIGHEST) & ~inside if node.negated else inside

    def _bits(self, low: int, high: int) -> int:
        return (1 << self._cuts[high + 1]) - (1 << self._cuts[low])

    def _places(self, node: Node, follow: int) -> Iterator[tuple[Node, int]]:
        """A node and those in it, each with its FOLLOW: the characters that may come after it."""
        yield node, follow
        match node:
            case Sequence(parts):
                for part in reversed(parts):
                    yield from self._places(part, follow)
                    follow = self._next(part, follow)
            case Choice(parts):
                for part in parts:
                    yield from self._places(part, follow)
            case Repeat(part, high=high):
                again = 0 if high == 1 else self._begins(part)
                yield from self._places(part, follow | again)

    def _next(self, part: Node, follow: int) -> int:
        """The characters that may come next before a part."""
        return self._begins(part) | (follow if self._empty(part) else 0)

    def _check_repeat(self, node: Repeat, follow: int) -> None:
        if self._empty(node.part):
            refuse_grammar(node.line, "repeats what may be empty")
        both = self._begins(node.part) & follow
        if both and node.low != node.high:
            self._refuse(node.line, both, "whether a repetition goes on")

    def _check_choice(self, node: Choice, follow: int) -> None:
        seen, empty = 0, False
        for part in node.parts:
            this_empty = self._empty(part)
            begins = self._next(part, follow)
            if begins & seen:
                self._refuse(node.line, begins & seen, "which part of a choice fits")
            if empty and this_empty:
                refuse_grammar(node.line, "has a choice of which several parts may be empty")
            seen, empty = seen | begins, empty or this_empty

    def _refuse(self, line: int, both: int, what: str) -> None:
        usual = both & self._bits(_USUAL, _USUAL) or both
        at = (usual & -usual).bit_length() - 1
        code = next(cut for cut, number in self._cuts.items() if number == at)
        refuse_grammar(
            line, f"has a place where the next character, {chr(code)!r}, does not decide {what}"
        )


def _cuts(nodes: Iterable[Node]) -> dict[int, int]:
    """The number of each stretch of equal characters, by its first character."""
    cuts = {0, _USUAL, _USUAL + 1, _HIGHEST + 1}
    left = list(nodes)
    while left:
        match left.pop():
            case Text(value):
                cuts |= {ord(value[0]), ord(value[0]) + 1}
            case Class(ranges):
                cuts |= {cut for low, high in ranges for cut in (low, high + 1)}
            case Sequence(parts) | Choice(parts):
                left += parts
            case Repeat(part):
                left.append(part)
            case _:
                pass
    return {cut: number for number, cut in enumerate(sorted(cuts))}
