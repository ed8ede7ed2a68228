"""What shall be traced: settings for all models and for single ones, changed while serving (X-13).

Values travel as clients write them: lists of text by the name of the setting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.errors import InvalidRequestError, UnsupportedError

Texts = Mapping[str, Sequence[str]]

LEVELS = ("TIMESTAMPS", "TENSORS")
_OLD_LEVELS = {"MIN": "TIMESTAMPS", "MAX": "TIMESTAMPS"}
_INTEGER = re.compile(r"\s*([+-]?[0-9]+)")


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """`rate`: one in so many requests; `count`: traces left to make, -1 for no end.

    `log_frequency`: traces in one file, 0 for all of them.
    """

    levels: frozenset[str] = frozenset()
    rate: int = 1000
    count: int = -1
    log_frequency: int = 0
    file: str = ""

    def texts(self) -> dict[str, list[str]]:
        """The settings as clients see them."""
        return {
            "trace_level": [level for level in LEVELS if level in self.levels] or ["OFF"],
            "trace_rate": [str(self.rate)],
            "trace_count": [str(self.count)],
            "log_frequency": [str(self.log_frequency)],
            "trace_file": [self.file],
            "trace_mode": ["triton"],
        }

    def check(self) -> None:
        """Raise when nothing could be traced although it shall be (T-20)."""
        reason = ""
        if self.levels and not self.rate:
            reason = "sample rate must be non-zero"
        elif self.levels and not self.file:
            reason = "trace file name is not given"
        if reason:
            raise InvalidRequestError(f"Attempting to set invalid trace setting :{reason}")


@dataclass(slots=True)
class TraceControl:
    """The settings in force: those of the start, and what clients have changed since.

    A model has a setting of its own until that is cleared; then it follows the one for all.
    """

    start: TraceSettings = field(default_factory=TraceSettings)
    _all: dict[str, Any] = field(default_factory=dict)
    _of: dict[str, dict[str, Any]] = field(default_factory=dict)

    def current(self, model: str = "") -> TraceSettings:
        """The settings for a model, or those for all."""
        return self._applied(self._all, self._of.get(model, {}))

    def change(self, texts: Texts, model: str = "") -> None:
        """Set what `texts` names, for one model or for all; an empty list clears a setting.

        Changes nothing when it raises, which is for values that make no sense.
        """
        changes = _read(texts)
        own = self._of.get(model, {}) if model else self._all
        merged = {k: v for k, v in (own | changes).items() if v is not None}
        layers = (self._all, merged) if model else (merged, {})
        self._applied(*layers).check()
        if model:
            self._of[model] = merged
        else:
            self._all = merged

    def _applied(self, for_all: Mapping[str, Any], of_model: Mapping[str, Any]) -> TraceSettings:
        return replace(self.start, **{**for_all, **of_model})


def _read(texts: Texts) -> dict[str, Any]:
    """Fields of `TraceSettings` by what `texts` says; `None` for one to be cleared."""
    if "trace_file" in texts:
        raise UnsupportedError("trace file location can not be updated through network protocol")
    changes: dict[str, Any] = {}
    if "trace_level" in texts:
        changes |= _levels(texts["trace_level"])
    if "trace_rate" in texts:
        changes["rate"] = _unsigned("trace_rate", texts["trace_rate"])
    if "trace_count" in texts:
        changes["count"] = _count("trace_count", texts["trace_count"])
    if "log_frequency" in texts:
        changes["log_frequency"] = _unsigned("log_frequency", texts["log_frequency"])
    return changes


def _levels(values: Sequence[str]) -> dict[str, Any]:
    """Levels that nobody knows count for nothing."""
    if "OFF" in values and len(values) > 1:
        raise InvalidRequestError("Expect only one trace level 'OFF' is specified")
    if not values:
        return {"levels": None}
    known = frozenset(_OLD_LEVELS.get(value, value) for value in values) & frozenset(LEVELS)
    return {"levels": known} if known or "OFF" in values else {}


def _unsigned(name: str, values: Sequence[str]) -> int | None:
    """A number that wraps around below zero, as the other server's does."""
    number = _number(name, values, "0, 4294967295")
    return None if number is None else number % (1 << 32)


def _count(name: str, values: Sequence[str]) -> int | None:
    number = _number(name, values, "-1, 2147483647")
    if number is not None and number < -1:
        raise InvalidRequestError(
            f"Unable to parse '{name}'. Expecting value >= -1, got: {values[0]}"
        )
    return number


def _number(name: str, values: Sequence[str], told: str) -> int | None:
    """The integer that the only value begins with; `None` for no value."""
    if not values:
        return None
    if len(values) > 1:
        raise InvalidRequestError(f"expect only 1 value for '{name}'")
    found = _INTEGER.match(values[0])
    if found is None:
        raise InvalidRequestError(f"Unable to parse '{name}', got: {values[0]}")
    number = int(found[1]) if len(found[1]) < 20 else 1 << 64
    if not -(1 << 31) <= number < 1 << 31:
        raise InvalidRequestError(
            f"Unable to parse '{name}', value is out of range [ {told} ], got: {values[0]}"
        )
    return number
