"""Counts the first, the second, ... response of a model's requests apart (contract ST-04)."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.core.errors import InferenceError, RequestCancelledError
from penstock.core.request import InferenceResponse
from penstock.inflight.statistics import ResponseStatistics

MOST = 1024
"""Responses of a request that are told apart; later ones are counted with the last of these."""

Transform = Callable[[InferenceResponse], InferenceResponse]


class ResponseTimes:
    """Counts the responses of one request as they are sent; applies `transform` to each.

    The time of a response is from the one before it, of the first from `started()`, which is when
    an instance took the request.
    """

    __slots__ = ("_final", "_index", "_last", "_started", "_statistics", "_transform")

    def __init__(
        self,
        statistics: dict[int, ResponseStatistics],
        started: Callable[[], int],
        transform: Transform | None = None,
    ) -> None:
        self._statistics = statistics
        self._started = started
        self._transform = transform
        self._final = False
        self._index = 0
        self._last = 0

    def __call__(self, response: InferenceResponse) -> InferenceResponse:
        """Count a response."""
        produced = time.monotonic_ns()
        if self._transform is not None:
            response = self._transform(response)
        self._final = response.final
        counted, taken = self._next(produced)
        if response.error is not None:
            counted.fail.add(taken)
        elif not response.outputs:
            counted.empty_response.add(taken)
        else:
            output = time.monotonic_ns() - produced
            counted.compute_infer.add(taken)
            counted.compute_output.add(output)
            counted.success.add(taken + output)
        return response

    def ended(self, error: InferenceError | None) -> None:
        """The request has ended; without a final response, what ended it is counted as one."""
        if self._final:
            return
        counted, taken = self._next(time.monotonic_ns())
        if error is None:
            counted.empty_response.add(taken)
        elif isinstance(error, RequestCancelledError):
            counted.cancel.add(taken)
        else:
            counted.fail.add(taken)

    def _next(self, now: int) -> tuple[ResponseStatistics, int]:
        """Where the next response is counted, and the time that it has taken."""
        index = min(self._index, MOST - 1)
        taken = max(now - (self._last or self._started() or now), 0)
        self._index += 1
        self._last = now
        counted = self._statistics.get(index)
        if counted is None:
            counted = self._statistics[index] = ResponseStatistics()
        return counted, taken
