"""Statistics of one model version: plain counters, durations and quantiles.

The model and its instances write them; the statistics RPC and the metrics page read the same
numbers on request. Times are in nanoseconds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.core.errors import InferenceError, RequestCancelledError
from penstock.core.request import InferenceResponse
from penstock.metrics.exposition import Exemplar
from penstock.metrics.histogram import Histogram
from penstock.metrics.summary import SlidingSummary


@dataclass(slots=True)
class Duration:
    """A count of events, and their total time in nanoseconds."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int, count: int = 1) -> None:
        self.count += count
        self.ns += ns


_SHORTEST = 6
_STEP = 2
QUEUE_BOUNDS = tuple(2.0 ** (_SHORTEST + _STEP * n) / 1e6 for n in range(11))
"""Upper bounds, in seconds, of the histogram of queue times: 64 microseconds to 67 seconds."""
_BUCKET_OF = tuple(
    min(max(0, bits - _SHORTEST + 1) // _STEP, len(QUEUE_BOUNDS)) for bits in range(65)
)
"""The histogram bucket of a time, by the bit length of its microseconds."""


class FailureReason(StrEnum):
    """Why a request failed (contract ME-04)."""

    REJECTED = "REJECTED"
    CANCELED = "CANCELED"
    BACKEND = "BACKEND"
    OTHER = "OTHER"


class Phase(StrEnum):
    """The phase in which a request was cancelled."""

    QUEUED = "queued"
    FORMING = "forming"
    EXECUTING = "executing"
    STREAMING = "streaming"


@dataclass(slots=True)
class BatchStatistics:
    """Executions of one batch size (contract ST-03)."""

    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)


@dataclass(slots=True)
class ResponseStatistics:
    """The n-th responses of all requests (contract ST-04)."""

    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    empty_response: Duration = field(default_factory=Duration)
    cancel: Duration = field(default_factory=Duration)


@dataclass(slots=True)
class Statistics:
    """Counters of one model version since it was loaded.

    `inference_count` counts batch rows, `execution_count` executions; `last_inference` is in
    milliseconds since the epoch. `last_ended` is when the last request ended, whatever became of
    it, in nanoseconds of the monotonic clock, 0 before the first. `pending` requests wait for an
    instance (ME-07), `in_flight` ones have not ended. `cached` says whether the response cache is
    used. `responses` are counted by index where `each_response` is set; `first_response` is the
    histogram of milliseconds to the first one, where it is on. `queue_times` is the histogram over
    `QUEUE_BOUNDS` and beyond; `queue_exemplars` are traced requests in its buckets.
    """

    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    cache_hit: Duration = field(default_factory=Duration)
    cache_miss: Duration = field(default_factory=Duration)
    failures: Counter[FailureReason] = field(default_factory=Counter)
    cancelled: Counter[Phase] = field(default_factory=Counter)
    batches: dict[int, BatchStatistics] = field(default_factory=dict)
    responses: dict[int, ResponseStatistics] = field(default_factory=dict)
    each_response: bool = False
    decoupled: bool = False
    first_response: Histogram | None = None
    inference_count: int = 0
    execution_count: int = 0
    last_inference: int = 0
    last_ended: int = 0
    queue_times: list[int] = field(default_factory=lambda: [0] * (len(QUEUE_BOUNDS) + 1))
    queue_exemplars: dict[int, Exemplar] = field(default_factory=dict)
    pending: int = 0
    in_flight: int = 0
    cached: bool = False
    _on_idle: Callable[[], None] | None = None

    @property
    def follows_responses(self) -> bool:
        """Whether responses are counted one by one."""
        return self.each_response or self.first_response is not None

    def entered(self) -> None:
        """Count an admitted request, which waits for an instance."""
        self.pending += 1
        self.in_flight += 1

    def waited(self, ns: int) -> None:
        """Count the queue time of an executed request, in nanoseconds."""
        queue = self.queue
        queue.count += 1
        queue.ns += ns
        self.queue_times[_BUCKET_OF[(ns // 1000).bit_length()]] += 1

    def traced_wait(self, ns: int, trace_id: str) -> None:
        """Make the queue time of a traced request the exemplar of its bucket."""
        bucket = _BUCKET_OF[(ns // 1000).bit_length()]
        self.queue_exemplars[bucket] = Exemplar(trace_id, ns / 1e9, time.time())

    def succeeded(
        self, total: int, queue: int, compute_input: int, compute_infer: int, compute_output: int
    ) -> None:
        """Count an answered request; nanoseconds in total and by phase."""
        self.waited(queue)
        # Inlined `Duration.add`, since this runs once per request.
        for duration, ns in (
            (self.success, total),
            (self.compute_input, compute_input),
            (self.compute_infer, compute_infer),
            (self.compute_output, compute_output),
        ):
            duration.count += 1
            duration.ns += ns

    def left(self) -> None:
        """Count off a request that was answered or cancelled."""
        self.in_flight -= 1
        if not self.in_flight and self._on_idle is not None:
            self._on_idle()

    def watch_idle(self, on_idle: Callable[[], None]) -> None:
        """Call `on_idle` whenever no request is in flight any more; at once if none is now."""
        self._on_idle = on_idle
        if not self.in_flight:
            on_idle()

    def executed(
        self, rows: int, compute_input: int, compute_infer: int, compute_output: int
    ) -> None:
        """Count one execution of `rows` batch rows; times in nanoseconds."""
        self.execution_count += 1
        batch = self.batches.get(rows)
        if batch is None:
            batch = self.batches[rows] = BatchStatistics()
        batch.compute_input.add(compute_input)
        batch.compute_infer.add(compute_infer)
        batch.compute_output.add(compute_output)


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
