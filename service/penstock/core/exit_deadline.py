"""The seconds that a server has left once it was asked to stop."""

from __future__ import annotations

import time


class Countdown:
    """Shared by everything that closes, one after the other (contract W-06).

    It runs from `start`, or else from the first look at what is left.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None

    def start(self) -> None:
        """Run from now on; a countdown that runs goes on."""
        if self._end is None:
            self._end = time.monotonic() + self._seconds

    def left(self) -> float:
        """Seconds until the end, 0 after it."""
        self.start()
        assert self._end is not None
        return max(self._end - time.monotonic(), 0.0)
