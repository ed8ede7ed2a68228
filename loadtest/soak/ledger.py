"""Outcomes of all calls, and the errors that the trouble of the moment allows."""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

GRACE = 2.0
"""Seconds around a trouble in which its errors are expected still."""

_EXAMPLES = 100
"""Kept of each outcome."""


class CallError(Exception):
    """A call that ended with an error of the server; `status` is its code's name or number."""

    def __init__(self, status: str, text: str = "") -> None:
        super().__init__(f"{status} {text}")
        self.status = status
        self.text = text


class WrongAnswerError(Exception):
    """An answer that is not what the request asked for."""


@dataclass(slots=True)
class Trouble:
    """Something that was done to a model, from `since` until it answers right again."""

    cause: str
    models: frozenset[str]
    since: float
    until: float = inf

    def may_fail(self, model: str, begun: float, ended: float) -> bool:
        """Whether a call to the model between these times may fail of it."""
        meets = begun <= self.until + GRACE and ended >= self.since - GRACE
        return model in self.models and meets


@dataclass(slots=True)
class Ledger:
    """Outcomes by kind of call, errors by cause and status, and recovery times by model.

    A call is `right`, `wrong`, an `expected` error (its cause is known: a trouble, or the call
    itself is faulty), an `unexpected` one, or `lost` when it had no outcome in its time.
    `standstill` is the longest time in seconds in which the clients themselves did nothing.
    """

    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    troubles: list[Trouble] = field(default_factory=list)
    made: Counter[str] = field(default_factory=Counter)
    recoveries: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    held_back: int = 0
    standstill: float = 0.0
    _begun: float = field(default_factory=time.monotonic)
    _last: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=4))

    def right(self, kind: str) -> None:
        self.outcomes[kind]["right"] += 1

    def wrong(self, kind: str, text: str) -> None:
        self._note(kind, "wrong", text)

    def lost(self, kind: str, text: str) -> None:
        self._note(kind, "lost", text)

    def expected(self, kind: str, cause: str, status: str) -> None:
        self.outcomes[kind]["expected"] += 1
        self.errors[cause, status] += 1

    def failed(self, kind: str, model: str, begun: float, error: CallError) -> None:
        """A call failed that began at `begun`: expected if the model was in trouble meanwhile."""
        now = time.monotonic()
        causes = {t.cause for t in self.troubles if t.may_fail(model, begun, now)}
        if causes:
            self.expected(kind, "+".join(sorted(causes)), error.status)
        else:
            self._note(kind, "unexpected", f"{model}: {error}")
            self.errors["none", error.status] += 1

    def trouble(self, cause: str, models: Iterable[str]) -> Trouble:
        """Trouble that begins now, for these models and all that need them."""
        trouble = Trouble(cause, frozenset(models), time.monotonic())
        self.troubles.append(trouble)
        self.begins(cause, trouble.models)
        return trouble

    def begins(self, cause: str, models: Iterable[str] = ()) -> None:
        """Something is done to the server now of which no call may fail, or only those models'."""
        self.made[cause] += 1
        names = sorted(models)
        self._last.append((time.monotonic(), " ".join([cause, *names[:4]])))

    def recovered(self, model: str, trouble: Trouble, *, counts: bool = True) -> None:
        """The trouble of a model is over."""
        trouble.until = time.monotonic()
        if counts:
            self.recoveries[f"{model}, {trouble.cause}"].append(trouble.until - trouble.since)

    def total(self, outcome: str) -> int:
        return sum(counts[outcome] for counts in self.outcomes.values())

    def _note(self, kind: str, outcome: str, text: str) -> None:
        self.outcomes[kind][outcome] += 1
        if len(self.examples[outcome]) < _EXAMPLES:
            now = time.monotonic()
            before = ", ".join(f"{now - at:.1f} s after {what}" for at, what in self._last)
            example = f"{kind}: {text[:300]} (at {now - self._begun:.1f} s, {before})"
            self.examples[outcome].append(example)
