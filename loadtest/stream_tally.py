"""Counts of a reader of streams: messages, times to the first, between them, and to the end."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol


class Timed(Protocol):
    """A call that is answered by a stream; times are in seconds, 0 before there is one."""

    start: float
    last: float


class Call:
    """A call of an engine that is asked without a server."""

    __slots__ = ("last", "start")

    def __init__(self, start: float) -> None:
        self.start = start
        self.last = 0.0


class Tally:
    """Counts of all calls of a reader. `mark` is a text that each token has in it, if any has.

    `refusal` is a text by which errors are known that are counted; with any other a load ends.
    `tokens` are those that the usage of answers counts, `wholes` the times of whole calls.
    """

    __slots__ = (
        "calls",
        "firsts",
        "gaps",
        "mark",
        "marks",
        "messages",
        "refusal",
        "refusals",
        "tokens",
        "wholes",
    )

    def __init__(self, mark: str = "", refusal: str = "") -> None:
        self.mark = mark.encode()
        self.refusal = refusal
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.calls = self.messages = self.marks = self.tokens = 0
        self.firsts = array("d")
        self.gaps = array("d")
        self.wholes = array("d")
        self.refusals = array("d")

    def message(self, call: Timed, now: float) -> None:
        """A message has come."""
        if call.last:
            self.gaps.append(now - call.last)
        else:
            self.firsts.append(now - call.start)
        call.last = now
        self.messages += 1

    def ended(self, call: Timed, now: float) -> None:
        """A call has ended."""
        self.wholes.append(now - call.start)
        self.calls += 1

    def error(self, call: Timed, text: str, now: float) -> None:
        """An error has come: a refusal, or the end of the load."""
        if not self.refusal or self.refusal not in text:
            raise SystemExit(f"an error came: {text}")
        self.refusals.append(now - call.start)

    def count_marks(self, parts: list[bytes]) -> None:
        """Count the tokens in what was received, and forget it."""
        self.marks += sum(part.count(self.mark) for part in parts)
        parts.clear()


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of them lies; 0 without any."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))] if ranked else 0.0
