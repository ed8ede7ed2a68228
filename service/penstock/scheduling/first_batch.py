"""`FirstBatch`: how many requests the first batch waits for, set in the environment for tests."""

from __future__ import annotations

import os
from dataclasses import dataclass

_QUEUED = "TRITONSERVER_DELAY_SCHEDULER"
_BACKLOG = "TRITONSERVER_BACKLOG_DELAY_SCHEDULER"


@dataclass(frozen=True, slots=True)
class FirstBatch:
    """The numbers of requests that have to wait before a scheduler forms a batch (D-20).

    `queued` are requests that could be executed, `backlog` those whose sequence has no slot.
    """

    queued: int
    backlog: int = 0

    def waits(self, queued: int, backlog: int) -> bool:
        """Whether there are too few requests yet."""
        return queued < self.queued or backlog < self.backlog

    @classmethod
    def from_environment(cls) -> FirstBatch | None:
        """The delay that the environment sets, `None` for none; a backlog alone delays nothing."""
        queued = _number(_QUEUED)
        return cls(queued, _number(_BACKLOG)) if queued else None


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else 0
