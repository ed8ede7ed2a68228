"""`LogThrottle`: a counter of events that are logged once a minute at most."""

from __future__ import annotations

from math import inf

_SECONDS = 60.0


class LogThrottle:
    """Counts events, and decides when to log their number. Knows no clock."""

    def __init__(self) -> None:
        self.count = 0
        self._logged = -inf

    def add(self, now: float) -> bool:
        """Count one, at a time in seconds; whether to log the number now."""
        self.count += 1
        if now - self._logged < _SECONDS:
            return False
        self._logged = now
        return True

    def reset(self) -> None:
        """Count from 0 again; the minute goes on."""
        self.count = 0
