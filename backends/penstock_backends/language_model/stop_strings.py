"""Stop strings found in text that arrives in pieces, wherever the pieces are cut."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Passes text on until a stop string is complete; that string itself is cut out or kept.

    The text that could be the beginning of a stop string is held back. Where several stop strings
    occur, the one that ends first counts, and of those that end together the longest: the outcome
    is the same however the text was cut.
    """

    def __init__(self, stops: Sequence[str], *, keep: bool = False) -> None:
        self._stops = sorted(stops, key=len, reverse=True)
        self._keep = keep
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str, *, armed: bool = True) -> str:
        """The part of the text so far that may be shown now.

        A stop string that ends while not `armed` does not count. After one was found, nothing
        more comes out.
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
        """What was held back, when no more text will come."""
        held, self._held = self._held, ""
        return held

    def _find(self, seen: str, fresh: int) -> int | None:
        """Where to cut `seen`, when a stop string ends behind the first `fresh` characters."""
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
        """Length of the longest end of `seen` that begins a stop string without completing it."""
        for length in range(min(len(self._stops[0]) - 1, len(seen)), 0, -1):
            tail = seen[-length:]
            if any(len(stop) > length and stop.startswith(tail) for stop in self._stops):
                return length
        return 0
