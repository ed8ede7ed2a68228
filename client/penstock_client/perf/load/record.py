"""The record of a process: requests that have ended, until its next chunk."""

from __future__ import annotations

import time
from array import array

from penstock_client.perf.load.job import FIRST_ERROR, Chunk
from penstock_client.perf.wire.call import Call

_MOST_ERRORS = 64
_OTHERS = "further errors of other texts"
_LONGEST = 300


class Record:
    """Requests that have ended since the last chunk."""

    def __init__(self) -> None:
        self._outcomes: dict[str, int] = {}
        self._new: list[str] = []
        self._clear()

    def _clear(self) -> None:
        # Lists, which take several values at once for less than arrays do.
        self._times: list[float] = []
        self._counts: list[int] = []
        self.between: list[float] = []
        """Times of responses behind the first of a request: of the one before, and its own."""

    def end(self, call: Call, now: float, outcome: int) -> None:
        """A request has ended."""
        self._times += (call.due, call.start, call.first, call.last, now)
        self._counts += (call.payload, outcome, call.responses, call.tokens)

    def outcome(self, error: str) -> int:
        """The number of an error, which is the same for the same text."""
        text = error[:_LONGEST]
        found = self._outcomes.get(text)
        if found is not None:
            return found
        if len(self._outcomes) >= _MOST_ERRORS:
            text = _OTHERS
            if text in self._outcomes:
                return self._outcomes[text]
        self._outcomes[text] = number = FIRST_ERROR + len(self._outcomes)
        self._new.append(text)
        return number

    def chunk(self, in_flight: int, waiting: int) -> Chunk:
        """The chunk with everything recorded; the record is empty afterwards."""
        new, self._new = self._new, []
        made = Chunk(
            array("d", self._times).tobytes(),
            array("I", self._counts).tobytes(),
            array("d", self.between).tobytes(),
            tuple(new),
            time.perf_counter(),
            time.process_time(),
            in_flight,
            waiting,
        )
        self._clear()
        return made
