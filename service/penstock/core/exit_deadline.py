"""`ExitDeadline`: the deadline by which a server that was asked to stop must have exited."""

from __future__ import annotations

import time


class ExitDeadline:
    """A budget of `seconds`, shared by everything that closes one after the other (W-06).

    It runs from `start`, or else from the first call of `left`.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None

    def start(self) -> None:
        """Run from now on; no effect if it runs already."""
        if self._end is None:
            self._end = time.monotonic() + self._seconds

    def left(self) -> float:
        """Seconds until the deadline, 0 after it."""
        self.start()
        assert self._end is not None
        return max(self._end - time.monotonic(), 0.0)
