"""Successive readings of an endpoint, of which any may fail. Knows no clock, socket or thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Reading(Generic[Value]):
    """What an endpoint answered, `at` seconds on any one clock."""

    value: Value
    at: float


@dataclass(frozen=True, slots=True)
class Readings(Generic[Value]):
    """The last reading, the one before it, and why the last try failed: empty if it did not.

    After a failure `now` stays, to be shown as old, and there is no `before` until two tries have
    succeeded: an average over the gap would tell nothing. `failing_since` is when the first try of
    those that failed in a row was made.
    """

    now: Reading[Value] | None = None
    before: Reading[Value] | None = None
    error: str = ""
    failing_since: float = 0.0

    def succeeded(self, value: Value, at: float) -> Readings[Value]:
        return Readings(Reading(value, at), None if self.error else self.now)

    def failed(self, error: str, at: float) -> Readings[Value]:
        since = self.failing_since if self.error else at
        return Readings(self.now, None, error, since)
