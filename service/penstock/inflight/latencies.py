"""Statistics that know more of latencies than their sums, for models that are to have them.

What they add is decided when a model is loaded; the requests of others pay nothing for it.
"""

from __future__ import annotations

import time

from penstock.core.request import InferenceResponse
from penstock.inflight.response_times import Transform
from penstock.inflight.statistics import Duration, Statistics
from penstock.metrics.histogram import Histogram
from penstock.metrics.summary import SlidingSummary


class FirstResponse:
    """Tells `histogram` the milliseconds from `start`, in nanoseconds, to the first response."""

    __slots__ = ("_histogram", "_start", "_transform")

    def __init__(self, histogram: Histogram, start: int, transform: Transform | None) -> None:
        self._histogram = histogram
        self._start = start
        self._transform = transform

    def __call__(self, response: InferenceResponse) -> InferenceResponse:
        """See a response on its way; what else is to be done with it is done first."""
        if self._start:
            self._histogram.observe((time.monotonic_ns() - self._start) / 1e6)
            self._start = 0
        return response if self._transform is None else self._transform(response)


class SummarizedDuration(Duration):
    """A duration that knows its quantiles, in microseconds."""

    __slots__ = ("summary",)

    def __init__(self) -> None:
        Duration.__init__(self)
        self.summary = SlidingSummary()

    def add(self, ns: int, count: int = 1) -> None:
        """Observe one; `ns` is nanoseconds."""
        Duration.add(self, ns, count)
        self.summary.add(ns // 1000)


class SummarizedStatistics(Statistics):
    """Counters whose durations know their quantiles (contract ME-15)."""

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
        """A request was executed and answered: nanoseconds in all, and at its stations."""
        self.waited(queue)
        self.success.add(total)
        self.compute_input.add(compute_input)
        self.compute_infer.add(compute_infer)
        self.compute_output.add(compute_output)

    def waited(self, ns: int) -> None:
        """A request that was executed had waited so long."""
        Statistics.waited(self, ns)
        assert isinstance(self.queue, SummarizedDuration)
        self.queue.summary.add(ns // 1000)
