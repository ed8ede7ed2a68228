"""Latency statistics beyond sums: quantiles, time to first response, the n-th response."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.core.errors import InferenceError, RequestCancelledError
from penstock.core.request import InferenceResponse
from penstock.inflight.statistics import Duration, ResponseStatistics, Statistics
from penstock.metrics.histogram import Histogram
from penstock.metrics.summary import SlidingSummary


class FirstResponse:
    """A transform that observes the time to the first response.

    `start` is in monotonic nanoseconds; `histogram` gets milliseconds, and `trace_id`, if the
    request is traced, as an exemplar.
    """

    __slots__ = ("_histogram", "_start", "_trace_id", "_transform")

    def __init__(
        self, histogram: Histogram, start: int, transform: Transform | None, trace_id: str = ""
    ) -> None:
        self._trace_id = trace_id
        self._histogram = histogram
        self._start = start
        self._transform = transform

    def __call__(self, response: InferenceResponse) -> InferenceResponse:
        """Observe a response, and apply `transform`."""
        if self._start:
            elapsed = (time.monotonic_ns() - self._start) / 1e6
            self._histogram.observe(elapsed, self._trace_id)
            self._start = 0
        return response if self._transform is None else self._transform(response)


class SummarizedDuration(Duration):
    """A duration with quantiles over a sliding window, in microseconds."""

    __slots__ = ("summary",)

    def __init__(self) -> None:
        Duration.__init__(self)
        self.summary = SlidingSummary()

    def add(self, ns: int, count: int = 1) -> None:
        """Add an observation of `ns` nanoseconds."""
        Duration.add(self, ns, count)
        self.summary.add(ns // 1000)


class SummarizedStatistics(Statistics):
    """Statistics whose durations have quantiles (contract ME-15)."""

    __slots__ = ()

    def __init__(self) -> None:
        Statistics.__init__(
            self,
            success=SummarizedDuration(),
            queue=SummarizedDuration(),
            compute_input=SummarizedDuration(),
            compute_infer=SummarizedDuration(),
            compute_output=SummarizedDuration(),
            cache_hit=SummarizedDuration(),
            cache_miss=SummarizedDuration(),
        )

    def succeeded(
        self, total: int, queue: int, compute_input: int, compute_infer: int, compute_output: int
    ) -> None:
        """Count an answered request; nanoseconds in total and by phase."""
        self.waited(queue)
        self.success.add(total)
        self.compute_input.add(compute_input)
        self.compute_infer.add(compute_infer)
        self.compute_output.add(compute_output)

    def waited(self, ns: int) -> None:
        """Count the queue time of an executed request, in nanoseconds."""
        Statistics.waited(self, ns)
        assert isinstance(self.queue, SummarizedDuration)
        self.queue.summary.add(ns // 1000)


MOST = 1024
"""Responses of a request that are counted by index; later ones count as the last of these."""

Transform = Callable[[InferenceResponse], InferenceResponse]


class ResponseTimes:
    """A transform that counts the responses of one request by index, and applies `transform`.

    The time of a response runs from the one before it; that of the first from `started()`, when
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
        elif response.empty:
            counted.empty_response.add(taken)
        else:
            output = time.monotonic_ns() - produced
            counted.compute_infer.add(taken)
            counted.compute_output.add(output)
            counted.success.add(taken + output)
        return response

    def ended(self, error: InferenceError | None) -> None:
        """Count the end of the request as a response, unless a final one was sent."""
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
        """The statistics of the next response, and the nanoseconds that it has taken."""
        index = min(self._index, MOST - 1)
        taken = max(now - (self._last or self._started() or now), 0)
        self._index += 1
        self._last = now
        counted = self._statistics.get(index)
        if counted is None:
            counted = self._statistics[index] = ResponseStatistics()
        return counted, taken
