"""Restart policy: when to start a dead process again, decided without a clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class RestartPolicy:
    """Backoff between restarts, and when to give up. Times are seconds on any one clock.

    The first restart comes at once; each further failure inside `window` doubles the delay from
    `first_delay` up to `longest_delay`; `limit` failures inside `window` are the end.
    """

    limit: int = 5
    window: float = 60.0
    first_delay: float = 0.1
    longest_delay: float = 10.0
    _failures: deque[float] = field(default_factory=deque)

    def failed(self, now: float) -> float | None:
        """Seconds to wait before the next start; `None` to give up."""
        failures = self._failures
        failures.append(now)
        while failures[0] < now - self.window:
            failures.popleft()
        count = len(failures)
        if count >= self.limit:
            return None
        if count == 1:
            return 0.0
        return float(min(self.first_delay * 2 ** (count - 2), self.longest_delay))
