"""`ExitDeadline`: the deadline by which a server that was asked to stop must have exited."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator


class ExitDeadline:
    """A budget of `seconds`, shared by everything that closes one after the other (W-06).

    It runs from `start`, or else from the first call of `left`. Each part that closes registers
    what it waits for (`waits_for`), and counts what it had to cut off at the end (`cut`).
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None
        self._waiting: dict[str, Callable[[], int]] = {}
        self.cut_off = 0

    @property
    def started(self) -> bool:
        """Whether it runs."""
        return self._end is not None

    def start(self) -> None:
        """Run from now on; no effect if it runs already."""
        if self._end is None:
            self._end = time.monotonic() + self._seconds

    def left(self) -> float:
        """Seconds until the deadline, 0 after it."""
        self.start()
        assert self._end is not None
        return max(self._end - time.monotonic(), 0.0)

    def waits_for(self, what: str, count: Callable[[], int]) -> None:
        """Register what the exit waits for, such as `gRPC calls`; `count` returns how many."""
        self._waiting[what] = count

    def waiting(self) -> Iterator[str]:
        """The parts that the exit still waits for, each with its number."""
        for what, count in self._waiting.items():
            if number := count():
                yield f"{what}: {number}"

    def cut(self, number: int) -> None:
        """Count requests, calls or connections that were cut off at the deadline."""
        self.cut_off += number
