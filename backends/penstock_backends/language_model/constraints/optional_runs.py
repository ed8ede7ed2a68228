"""Parts that may be left out, one after the other, in a regular expression or a grammar.

An engine follows every reading of a text at once. `[a-z]?` 300 times in a row takes xgrammar 14 s
of CPU to compile and 0.9 s a token with 4,096 tokens, in the step of all requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from penstock_backends.language_model.constraints.grammar_rules import Rules

_MOST: Final = 1 << 60
"""No run is counted further: rules that double one another come to more than a machine holds."""

_COUNT = r"\{(?P<low>\d+)(?P<comma>,)?(?P<high>\d*)\}"
_CLASS = r"\[(?:\\.|[^\]\\])*\]"
_REGEX = re.compile(
    rf"(?P<open>\((?:\?(?:[:=!]|<[=!]|P?<\w+>))?)|\\.|{_CLASS}|{_COUNT}"
    r"|[^()|?*+{\[\\]+(?![?*+{])|.",
    re.DOTALL,
)
_GRAMMAR = re.compile(
    rf"""(?P<open>\()|(?P<empty>"")|"(?:\\.|[^"\\])*"|{_CLASS}|{_COUNT}"""
    r"""|(?P<name>[A-Za-z_][\w-]*)|\\.|.""",
    re.DOTALL,
)


class _Run(NamedTuple):
    """Parts that may be left out: at the beginning, at the end, and most in a row anywhere.

    `empty`: whether all of it may be left out.
    """

    empty: bool = False
    first: int = 0
    last: int = 0
    longest: int = 0

    def then(self, other: _Run) -> _Run:
        """This, and the other after it."""
        return _Run(
            self.empty and other.empty,
            min(self.first + (other.first if self.empty else 0), _MOST),
            min(other.last + (self.last if other.empty else 0), _MOST),
            max(self.longest, other.longest, min(self.last + other.first, _MOST)),
        )

    def otherwise(self, other: _Run) -> _Run:
        """This or the other."""
        return _Run(
            self.empty or other.empty,
            max(self.first, other.first),
            max(self.last, other.last),
            max(self.longest, other.longest),
        )

    def as_part(self) -> _Run:
        """This as one part, which counts if it may be left out."""
        if not self.empty:
            return self
        return _Run(True, max(self.first, 1), max(self.last, 1), max(self.longest, 1))

    def repeated(self, low: int, high: int) -> _Run:
        """This at least `low` times, and at most `high`."""
        if self.empty:
            ends = min(self.longest * max(high, 1), _MOST)
            return _Run(True, ends, ends, ends)
        if not low:
            return self._replace(empty=True).as_part()
        return self.then(self) if high > 1 else self


_NOTHING: Final = _Run(empty=True)
_PART: Final = _Run()
_SIGNS: Final = {"?": (0, 1), "*": (0, 1), "+": (1, 1)}
"""Least and most repetitions; those without a bound do not make a run longer."""


def regex_run(regex: str) -> int:
    """The most parts in a row that may be left out."""
    return _run(regex, _REGEX, None).longest


def grammar_run(bodies: Mapping[str, str]) -> int:
    """As `regex_run`, of a grammar's rules by name; rules count for what they stand for."""
    rules = Rules(bodies, lambda body, rule: _run(body, _GRAMMAR, rule), _PART)
    return max((rules.value(name).longest for name in bodies), default=0)


def _run(text: str, tokens: re.Pattern[str], rule: Callable[[str], _Run] | None) -> _Run:
    group = _Group()
    around: list[_Group] = []
    for token in tokens.finditer(text):
        if token["open"]:
            around.append(group)
            group = _Group()
        elif token[0] == ")" and around:
            closed, group = group.whole.as_part(), around.pop()
            group.add(closed)
        else:
            group.read(token, rule)
    for outer in reversed(around):
        outer.add(group.whole)
        group = outer
    return group.whole


class _Group:
    """The inside of a pair of parentheses, as far as it was read."""

    def __init__(self) -> None:
        self._others: _Run | None = None
        self._before = _NOTHING
        self._last = _NOTHING

    @property
    def whole(self) -> _Run:
        """All of it."""
        this = self._before.then(self._last)
        return this if self._others is None else self._others.otherwise(this)

    def add(self, part: _Run) -> None:
        """Add a part, which a count may follow."""
        self._before, self._last = self._before.then(self._last), part

    def read(self, token: re.Match[str], rule: Callable[[str], _Run] | None) -> None:
        """Read anything but a parenthesis; `rule` gives the runs of a grammar's rules."""
        if token[0] == "|":
            self._others, self._before, self._last = self.whole, _NOTHING, _NOTHING
        elif token["low"]:
            highest = token["high"] or token["low"]
            self._last = self._last.repeated(int(token["low"][:9]), int(highest[:9]))
        elif token[0] in _SIGNS:
            self._last = self._last.repeated(*_SIGNS[token[0]])
        elif rule is None:
            self.add(_PART)
        elif not token[0].isspace():
            self.add(_symbol(token, rule))


def _symbol(token: re.Match[str], rule: Callable[[str], _Run]) -> _Run:
    """The run of a grammar's literal, class or rule."""
    if token["name"]:
        return rule(token["name"]).as_part()
    return _NOTHING if token["empty"] else _PART
