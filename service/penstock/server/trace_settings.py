"""`TraceControl`: trace settings of all models and of single ones, changed while serving (X-13)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.errors import InvalidRequestError, UnsupportedError
from penstock.settings import TraceSettings

Texts = Mapping[str, Sequence[str]]

LEVELS = ("TIMESTAMPS", "TENSORS")
_OLD_LEVELS = {"MIN": "TIMESTAMPS", "MAX": "TIMESTAMPS"}
_INTEGER = re.compile(r"\s*([+-]?[0-9]+)")


def trace_texts(settings: TraceSettings) -> dict[str, list[str]]:
    """The settings as clients see them: lists of text by the name of the setting."""
    return {
        "trace_level": [level for level in LEVELS if level in settings.levels] or ["OFF"],
        "trace_rate": [str(settings.rate)],
        "trace_count": [str(settings.count)],
        "log_frequency": [str(settings.log_frequency)],
        "trace_file": [settings.file],
        "trace_mode": ["triton"],
    }


def _check(settings: TraceSettings) -> None:
    """Refuse settings that enable tracing but leave out what it needs (T-20)."""
    reason = ""
    if settings.levels and not settings.rate:
        reason = "sample rate must be non-zero"
    elif settings.levels and not settings.file:
        reason = "trace file name is not given"
    if reason:
        raise InvalidRequestError(f"Attempting to set invalid trace setting :{reason}")


@dataclass(slots=True)
class TraceControl:
    """The trace settings in force: those of the start, overridden by what clients changed since.

    A setting of one model overrides that of all models until it is cleared.
    """

    start: TraceSettings = field(default_factory=TraceSettings)
    _all: dict[str, Any] = field(default_factory=dict)
    _by_model: dict[str, dict[str, Any]] = field(default_factory=dict)

    def current(self, model: str = "") -> TraceSettings:
        """The settings of a model, or those of all models."""
        return self._applied(self._all, self._by_model.get(model, {}))

    def change(self, texts: Texts, model: str = "") -> None:
        """Change the settings that `texts` names, of one model or of all; an empty list clears one.

        Raises `InvalidRequestError` or `UnsupportedError`; then nothing has changed.
        """
        changes = _read(texts)
        own = self._by_model.get(model, {}) if model else self._all
        merged = {k: v for k, v in (own | changes).items() if v is not None}
        layers = (self._all, merged) if model else (merged, {})
        _check(self._applied(*layers))
        if model:
            self._by_model[model] = merged
        else:
            self._all = merged

    def _applied(self, all_models: Mapping[str, Any], one: Mapping[str, Any]) -> TraceSettings:
        return replace(self.start, **{**all_models, **one})


def _read(texts: Texts) -> dict[str, Any]:
    """The fields of `TraceSettings` that `texts` changes; `None` for one to clear."""
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
    """The levels named; unknown ones are ignored."""
    if "OFF" in values and len(values) > 1:
        raise InvalidRequestError("Expect only one trace level 'OFF' is specified")
    if not values:
        return {"levels": None}
    known = frozenset(_OLD_LEVELS.get(value, value) for value in values) & frozenset(LEVELS)
    return {"levels": known} if known or "OFF" in values else {}


def _unsigned(name: str, values: Sequence[str]) -> int | None:
    """An unsigned 32-bit number; negative values wrap around, as in Triton."""
    number = _number(name, values, "0, 4294967295")
    return None if number is None else number % (1 << 32)


def _count(name: str, values: Sequence[str]) -> int | None:
    number = _number(name, values, "-1, 2147483647")
    if number is not None and number < -1:
        raise InvalidRequestError(
            f"Unable to parse '{name}'. Expecting value >= -1, got: {values[0]}"
        )
    return number


def _number(name: str, values: Sequence[str], bounds: str) -> int | None:
    """The integer at the start of the only value; `None` for no value."""
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
            f"Unable to parse '{name}', value is out of range [ {bounds} ], got: {values[0]}"
        )
    return number
