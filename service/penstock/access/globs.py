"""Globs: patterns in which `*` stands for any text, matched without backtracking."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.errors import ConfigError

_LONGEST = 256
_OTHER_WILDCARDS = frozenset("?[]")


class Glob:
    """A pattern. Its parts are sought from left to right, each once, so that none explodes."""

    __slots__ = ("_first", "_last", "_middle", "text")

    def __init__(self, text: str) -> None:
        """Raises `ConfigError` for what other globs have and this one does not."""
        if not text or len(text) > _LONGEST:
            raise ConfigError(f"a pattern must have 1 to {_LONGEST} characters")
        if _OTHER_WILDCARDS.intersection(text):
            raise ConfigError(f"'{text}': the only wildcard is '*'")
        self.text = text
        first, *rest = text.split("*")
        self._first = first
        self._last = rest.pop() if rest else None
        self._middle = [part for part in rest if part]

    @property
    def is_literal(self) -> bool:
        """Whether it fits nothing but its own text."""
        return self._last is None

    def fits(self, name: str) -> bool:
        """Whether it fits the whole of a name; case counts."""
        if self._last is None:
            return name == self._first
        end = len(name) - len(self._last)
        at = len(self._first)
        if at > end or not (name.startswith(self._first) and name.endswith(self._last)):
            return False
        for part in self._middle:
            found = name.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True


def any_fits(globs: Iterable[Glob], name: str) -> bool:
    """Whether one of the patterns fits."""
    return any(glob.fits(name) for glob in globs)
