"""Results of a load as arrays, one element for each request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock_client.perf.load.job import COUNTS, CUT_OFF, FIRST_ERROR, OK, TIMES, Chunk

Floats = NDArray[np.float64]
Counts = NDArray[np.uint32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """Requests that have ended; times are of `time.perf_counter`, in seconds.

    `times` has the columns due, start, first and last response, end; `counts` payload, outcome,
    responses, tokens. `gaps` lie between responses and ended at `gap_times`. `errors` are texts by
    outcome.
    """

    times: Floats
    counts: Counts
    gaps: Floats
    gap_times: Floats
    errors: dict[int, str]

    @property
    def due(self) -> Floats:
        return self.times[:, 0]

    @property
    def start(self) -> Floats:
        return self.times[:, 1]

    @property
    def first(self) -> Floats:
        return self.times[:, 2]

    @property
    def last(self) -> Floats:
        return self.times[:, 3]

    @property
    def end(self) -> Floats:
        return self.times[:, 4]

    @property
    def responses(self) -> Counts:
        return self.counts[:, 2]

    @property
    def tokens(self) -> Counts:
        return self.counts[:, 3]

    @property
    def answered(self) -> Mask:
        """The mask of requests that went well."""
        return np.asarray(self.counts[:, 1] == OK)

    @property
    def cut_off(self) -> Mask:
        """The mask of requests that were given up at the end of the load."""
        return np.asarray(self.counts[:, 1] == CUT_OFF)

    @property
    def failed(self) -> Mask:
        """The mask of requests that ended with an error."""
        return np.asarray(self.counts[:, 1] >= FIRST_ERROR)

    def chosen(self, mask: Mask, gaps: Mask) -> Results:
        """Some of the requests and of the gaps."""
        return Results(
            self.times[mask], self.counts[mask], self.gaps[gaps], self.gap_times[gaps], self.errors
        )

    def error_counts(self) -> dict[str, int]:
        """Numbers of requests by error, the most frequent first."""
        outcomes, counts = np.unique(self.counts[:, 1][self.failed], return_counts=True)
        found = sorted(zip(counts.tolist(), outcomes.tolist(), strict=True), reverse=True)
        return {self.errors[outcome]: count for count, outcome in found}


@dataclass(slots=True)
class Collected:
    """The chunks of all processes, as they come."""

    _times: list[Floats] = field(default_factory=list)
    _counts: list[Counts] = field(default_factory=list)
    _between: list[Floats] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)
    _by_process: dict[int, list[int]] = field(default_factory=dict)

    def add(self, process: int, chunk: Chunk) -> Counts:
        """Keep a chunk; its counts, with errors numbered alike for all processes."""
        outcomes = self._by_process.setdefault(process, [OK, CUT_OFF])
        for text in chunk.errors:
            if text not in self._texts:
                self._texts.append(text)
            outcomes.append(FIRST_ERROR + self._texts.index(text))
        times = np.frombuffer(chunk.times, np.float64).reshape(-1, TIMES)
        counts = np.frombuffer(chunk.counts, np.uint32).reshape(-1, COUNTS).copy()
        # Each process has numbers of its own for errors.
        counts[:, 1] = np.array(outcomes, np.uint32)[counts[:, 1]]
        self._times.append(times)
        self._counts.append(counts)
        self._between.append(np.frombuffer(chunk.between, np.float64).reshape(-1, 2))
        return counts

    def results(self) -> Results:
        """All that was kept."""
        before, after = _stacked(self._between, np.empty((0, 2))).T
        return Results(
            _stacked(self._times, np.empty((0, TIMES))),
            _stacked(self._counts, np.empty((0, COUNTS), np.uint32)),
            after - before,
            after,
            {FIRST_ERROR + number: text for number, text in enumerate(self._texts)},
        )


def _stacked(parts: Sequence[NDArray[Any]], empty: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([empty, *parts])
