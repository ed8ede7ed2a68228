"""Streaming search for stop strings in text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MOST_STOPS: Final = 256
MOST_CHARACTERS: Final = 1 << 14
"""Of all stop strings of a request together: the search for them at each of its tokens holds up
every other request."""


def stops_complaint(stops: Sequence[str]) -> str:
    """What is wrong with so many or so long stop strings; empty for those that are taken."""
    if len(stops) > MOST_STOPS:
        return f"must hold at most {MOST_STOPS} strings, not {len(stops)}"
    characters = sum(map(len, stops))
    if characters > MOST_CHARACTERS:
        return f"must have at most {MOST_CHARACTERS} characters together, not {characters}"
    return ""


class StopStrings:
    """A filter that passes text up to the first stop string, which is cut out or kept.

    Text that may be the beginning of a stop string is buffered. Of several stop strings the one
    that ends first counts, of those that end together the longest: the result does not depend on
    how the text was cut.
    """

    def __init__(self, stops: Sequence[str], *, keep: bool = False) -> None:
        self._stops = sorted(stops, key=len, reverse=True)
        self._keep = keep
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str, *, armed: bool = True) -> str:
        """Add text; returns the text that can be output now.

        A stop string that ends while not `armed` does not count. After one was found, the result
        is empty.
        """
        if self.found is not None:
            return ""
        fresh = len(self._held)
        seen = self._held + text
        if armed:
            end = self._find(seen, fresh)
            if end is not None:
                self._held = ""
                return seen[:end]
        keep = self._partial(seen)
        self._held = seen[len(seen) - keep :]
        return seen[: len(seen) - keep]

    def flush(self) -> str:
        """The buffered text, at the end of the input."""
        held, self._held = self._held, ""
        return held

    def _find(self, seen: str, fresh: int) -> int | None:
        """Where to cut `seen`, if a stop string ends after its first `fresh` characters."""
        first = len(seen) + 1
        cut = None
        for stop in self._stops:
            at = seen.find(stop, max(0, fresh - len(stop) + 1))
            end = at + len(stop)
            if at >= 0 and end < first:
                first, cut = end, end if self._keep else at
                self.found = stop
        return cut

    def _partial(self, seen: str) -> int:
        """The length of the longest suffix of `seen` that is a proper prefix of a stop string."""
        for length in range(min(len(self._stops[0]) - 1, len(seen)), 0, -1):
            tail = seen[-length:]
            if any(len(stop) > length and stop.startswith(tail) for stop in self._stops):
                return length
        return 0
