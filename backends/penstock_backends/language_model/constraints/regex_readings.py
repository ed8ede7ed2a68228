"""Regular expressions that can read one text in so many ways that an engine loses itself in them.

xgrammar follows all readings of a text at once. A repetition of what may be empty, with a
repetition in it (`(a*)*`), lets each character end an inner and an outer one: a token then takes
the square of the text's length. With `((aa|a)*)*b?` a token took 50 ms at the 200th, in which
nobody else is served.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

_MANY: Final = 10
"""Repetitions from which on their readings count: 5 ms for the 200th token of `(a{0,10})*b`."""
_ENDLESS: Final = 1 << 60

_TOKEN = re.compile(
    r"""(?P<group>\((?:\?(?:[:=!]|<[=!]|P?<\w+>))?)|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]"""
    r"""|(?P<count>[*+?]|\{(?P<low>\d+)(?P<comma>,)?(?P<high>\d*)\})|.""",
    re.DOTALL,
)


class _Part(NamedTuple):
    """A part of an expression: whether it may be empty, and how often it repeats what is in it."""

    empty: bool = False
    repeats: int = 1


_NOTHING: Final = _Part(empty=True)


@dataclass(slots=True)
class _Group:
    """A group as far as it was read: its largest repetition, and which parts may be empty."""

    last: _Part = _NOTHING  # which a count may follow
    sequence_empty: bool = True  # all in front of the last
    empty: bool = False  # one of the alternatives in front
    repeats: int = 1

    def add(self, part: _Part) -> None:
        """Read one more part."""
        self.sequence_empty = self.sequence_empty and self.last.empty
        self.last = part

    def repeat(self, low: int, high: int) -> bool:
        """Read a count; whether it repeats what may be empty, and repeats itself."""
        last = self.last
        repeats = min(last.repeats * max(high, 1), _ENDLESS)
        self.last = _Part(last.empty or low == 0, repeats)
        self.repeats = max(self.repeats, repeats)
        return last.empty and min(last.repeats, high) > _MANY

    def end_alternative(self) -> None:
        """Read a `|`, or the end."""
        self.add(_NOTHING)
        self.empty = self.empty or self.sequence_empty
        self.sequence_empty = True

    def whole(self) -> _Part:
        """The group as a part of the one around it."""
        self.end_alternative()
        return _Part(self.empty, self.repeats)


def repeats_what_may_be_empty(regex: str) -> bool:
    """Whether an expression has a repetition like that of `(a*)*`.

    What it does not know in an expression counts as a character.
    """
    groups = [_Group()]
    counted = False
    for token in _TOKEN.finditer(regex):
        one, count = token[0], token["count"]
        lazy = counted and one == "?"
        counted = count is not None and not lazy
        if token["group"]:
            groups.append(_Group())
        elif one == ")" and len(groups) > 1:
            part = groups.pop().whole()
            groups[-1].add(part)
            groups[-1].repeats = max(groups[-1].repeats, part.repeats)
        elif one == "|":
            groups[-1].end_alternative()
        elif one in "^$":
            groups[-1].add(_NOTHING)
        elif count is None:
            groups[-1].add(_Part())
        elif not lazy and groups[-1].repeat(*_bounds(token)):
            return True
    return False


def _bounds(token: re.Match[str]) -> tuple[int, int]:
    """Least and most of a count."""
    if token["low"] is None:
        return (1 if token[0] == "+" else 0), (1 if token[0] == "?" else _ENDLESS)
    low = int(token["low"][:9])
    if token["high"]:
        return low, int(token["high"][:9])
    return low, _ENDLESS if token["comma"] else low
