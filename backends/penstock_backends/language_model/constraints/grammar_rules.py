"""The rules of a grammar in EBNF, and what is known of each by what it stands for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_RULE = re.compile(r"^\s*([A-Za-z_][\w-]*)\s*::=", re.MULTILINE)
_DEEPEST: Final = 50
"""How deep rules are followed."""


def rule_bodies(grammar: str) -> Mapping[str, str]:
    """The bodies by the rules' names; none for what is no EBNF."""
    starts = list(_RULE.finditer(grammar))
    ends = [*(start.start() for start in starts[1:]), len(grammar)]
    return {s[1]: grammar[s.end() : end] for s, end in zip(starts, ends, strict=False)}


class Rules(Generic[T]):
    """Values of a grammar's rules; `unknown` is that of a rule inside itself.

    `measure` takes a body, and what gives the value of the rules that it names.
    """

    def __init__(
        self,
        bodies: Mapping[str, str],
        measure: Callable[[str, Callable[[str], T]], T],
        unknown: T,
    ) -> None:
        self._bodies = bodies
        self._measure = measure
        self._unknown = unknown
        self._known: dict[str, T] = {}
        self._open: list[str] = []

    def value(self, name: str) -> T:
        """The value of a rule."""
        if name in self._known:
            return self._known[name]
        if name not in self._bodies or name in self._open or len(self._open) == _DEEPEST:
            return self._unknown
        self._open.append(name)
        self._known[name] = found = self._measure(self._bodies[name], self.value)
        self._open.pop()
        return found
