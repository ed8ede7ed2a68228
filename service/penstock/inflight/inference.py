"""`Inference`: one admitted request in flight, from the scheduler's queue to its last response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from penstock.core.call_chain import Wait
from penstock.core.errors import (
    DeadlineExceededError,
    InferenceError,
    RejectedError,
    RequestCancelledError,
)
from penstock.core.flow_control import WINDOW, Window
from penstock.core.request import (
    ExchangePart,
    InferenceRequest,
    InferenceResponse,
    ReportUsage,
)
from penstock.core.stream import ResponseStream
from penstock.core.timeline import Batch, Timeline
from penstock.inflight.deadlines import Deadlines, Expiring, TimerSlot
from penstock.inflight.statistics import (
    FailureReason,
    FirstResponse,
    Phase,
    ResponseTimes,
    Statistics,
    Transform,
)
from penstock.shared_memory.registry import Regions


@dataclass(slots=True)
class ComputeTimes:
    """Sums of the compute times of an ensemble's steps, in nanoseconds."""

    compute_input: int = 0
    compute_infer: int = 0
    compute_output: int = 0

    def add(self, compute_input: int, compute_infer: int, compute_output: int) -> None:
        self.compute_input += compute_input
        self.compute_infer += compute_infer
        self.compute_output += compute_output


class BatchFormer(Protocol):
    """A scheduler that forms batches."""

    @property
    def forming(self) -> bool:
        """Whether an instance is idle while a batch waits for more requests."""


class Inference:
    """A request, the stream of its responses, and the timestamps of its phases.

    Timestamps are of `time.monotonic_ns`, 0 until the phase is reached. The scheduler calls
    `started` when an instance takes the request; the instance sets the compute times. Statistics
    are written once, when the stream ends; then the callbacks run: `on_end` for the queue that
    the request is in, after it `on_left` for its sequence.
    `timeline`, if the request is traced, is completed then too.
    `rescheduled` is set by an instance that executed the request and wants it again. The compute
    times are also added to `within`, of the ensemble. `former` forms the batch that the request
    waits for. `responses` counts each response, where the model's statistics do. `wait` is the
    edge of the wait-for graph, if a blocking call made the request. `on_usage` gets the request's
    tokens, where its model process reports them; of a cancelled one, also after its end. `by_parts`
    is set of an exchange that the model answers by requests with tensors, whose successes count in
    its place. `running` keeps the request by its ids until it ends, if it has any. `error` is that
    of the end, also where it came as the last response.
    """

    __slots__ = (
        "_alarm",
        "by_parts",
        "compute_end",
        "compute_input_end",
        "compute_output_start",
        "compute_start",
        "error",
        "former",
        "from_backend",
        "lookup_end",
        "lookup_start",
        "on_end",
        "on_left",
        "on_usage",
        "request",
        "rescheduled",
        "responses",
        "rows",
        "running",
        "start",
        "statistics",
        "stream",
        "timeline",
        "wait",
        "within",
    )

    def __init__(
        self,
        request: InferenceRequest,
        rows: int,
        statistics: Statistics,
        version: str = "",
        within: ComputeTimes | None = None,
        window: Window = WINDOW,
    ) -> None:
        self.request = request
        self.rows = rows
        self.stream = ResponseStream(self._ended, version, window)
        self.from_backend = False
        self.rescheduled = False
        self.by_parts = False
        self.error: InferenceError | None = None
        self.former: BatchFormer | None = None
        self.responses: ResponseTimes | None = None
        self.wait: Wait | None = None
        self.timeline: Timeline | None = None
        self._alarm: TimerSlot[Expiring] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_left: Callable[[], None] | None = None
        self.on_usage: ReportUsage | None = None
        self.running: RunningRequests | None = None
        self.start = time.monotonic_ns()
        self.compute_start = self.compute_input_end = 0
        self.compute_output_start = self.compute_end = 0
        self.lookup_start = self.lookup_end = 0
        self.statistics = statistics
        self.within = within
        statistics.entered()

    @property
    def abandoned(self) -> bool:
        """Whether the stream has ended: answered, cancelled, failed or expired."""
        return self.stream.ended

    def started(self, now: int) -> None:
        """Mark the request as taken by an instance, at `now` in monotonic nanoseconds."""
        self.compute_start = now
        self.statistics.pending -= 1

    def found_in_cache(self, lookup_start: int, lookup_end: int) -> None:
        """Mark the request as a cache hit, whose response is sent next."""
        self.lookup_start, self.lookup_end = lookup_start, lookup_end

    def also_at_end(self, call: Callable[[], None]) -> None:
        """Add a callback to `on_end`, behind the present one."""
        before = self.on_end

        def both() -> None:
            if before is not None:
                before()
            call()

        self.on_end = both

    def restarted(self) -> None:
        """Mark the request as queued again, after an execution that rescheduled it."""
        self.rescheduled = False
        self.compute_start = self.compute_input_end = 0
        self.compute_output_start = self.compute_end = 0
        self.statistics.pending += 1

    def counting_responses(self, transform: Transform | None) -> Transform | None:
        """Wrap `transform` in the counters of single responses that the statistics ask for."""
        statistics, counting = self.statistics, transform
        if statistics.each_response and self.request.exchange is None:
            counted = statistics.responses
            counting = self.responses = ResponseTimes(
                counted, lambda: self.compute_start, transform
            )
        if statistics.first_response is not None:
            traced_as = self._exemplar_id()
            counting = FirstResponse(statistics.first_response, self.start, counting, traced_as)
        return counting

    def record(self, parent: Timeline, model: str) -> None:
        """Record the request in a timeline below that of what it is part of."""
        request = self.request
        timeline = parent.nest(model, self.stream.model_version, request.id, self.start)
        self.timeline = timeline
        request.scope.timeline = timeline
        if timeline.trace.takes_tensors:
            timeline.add_tensors("TENSOR_QUEUE_INPUT", request.inputs)

    def _exemplar_id(self) -> str:
        """The id under which the trace can be found once it has ended; empty if there is none."""
        timeline = self.timeline
        return timeline.trace.text_id if timeline is not None and timeline.trace.levels else ""

    def watch(self, deadlines: Deadlines) -> None:
        """Register the request's deadline."""
        deadline = self.request.scope.deadline
        assert deadline is not None
        self._alarm = deadlines.watch(self, deadline)

    def keep_in(self, running: RunningRequests) -> None:
        """Be found by the request's ids until it ends."""
        self.running = running
        running.add(self.request, self.stream)

    def expire(self) -> None:
        """Cancel the request, wherever it is, since its deadline has passed.

        The text is gRPC's own, as of a client that notices the deadline first.
        """
        self.stream.abort(DeadlineExceededError("Deadline Exceeded"))

    @property
    def phase(self) -> Phase:
        """The present phase of the request."""
        if self.stream.begun:
            return Phase.STREAMING
        if self.compute_start:
            return Phase.EXECUTING
        return Phase.FORMING if self.former is not None and self.former.forming else Phase.QUEUED

    def fail(self, error: InferenceError, *, from_backend: bool = False) -> None:
        """Answer with an error; `from_backend` when the model itself raised it."""
        self.from_backend = from_backend
        self.stream.fail(error)

    def refused(self, error: InferenceError) -> None:
        """End a request that no scheduler took; it counts as failed only if a queue rejected it."""
        if isinstance(error, RejectedError):
            self.fail(error)
            return
        self.statistics.pending -= 1
        self.statistics.left()
        self._release()
        if self.timeline is not None:
            self.timeline.finish(error)

    def _ended(self, error: InferenceError | None) -> None:
        statistics = self.statistics
        self.error = error
        if not self.compute_start:
            statistics.pending -= 1
        statistics.last_ended = now = time.monotonic_ns()
        if error is None:
            if not self.by_parts:
                self._count_success(now)
        else:
            statistics.fail.add(now - self.start)
            self._count_failure(error)
        if self.responses is not None:
            self.responses.ended(error)
        if self.timeline is not None:
            self._record_phases(self.timeline, error, now)
        statistics.left()
        self._release()
        on_end, self.on_end = self.on_end, None  # breaks reference cycles
        if on_end is not None:
            on_end()
        if self.on_left is not None:
            self.on_left()

    def _record_phases(self, timeline: Timeline, error: InferenceError | None, now: int) -> None:
        """Complete the timeline with the phases of the request, under Triton's names (T-09)."""
        mark = timeline.mark
        mark("REQUEST_START", self.start)
        mark("QUEUE_START", self.start)
        if self.lookup_end:
            timeline.facts["cache"] = "hit"
            mark("CACHE_LOOKUP_START", self.lookup_start)
            mark("CACHE_LOOKUP_END", self.lookup_end)
        if (batch := timeline.batch) is not None:
            mark("COMPUTE_START", self.compute_start)
            # A stream, and a cancelled request, may end before their execution.
            mark("COMPUTE_INPUT_END", self.compute_input_end or self.compute_start)
            mark("COMPUTE_OUTPUT_START", self.compute_output_start or now)
            mark("COMPUTE_END", self.compute_end or now)
            batch.end = max(batch.end, self.compute_end or now)
            if error is None and (trace_id := self._exemplar_id()):
                self.statistics.traced_wait(self.compute_start - self.start, trace_id)
        mark("REQUEST_END", now)
        if isinstance(error, RequestCancelledError):
            timeline.facts["cancelled_while"] = self.phase.value
        timeline.finish(error, now)

    def _release(self) -> None:
        """Cancel the deadline, and forget the request where others could find it."""
        if self._alarm is not None:
            self._alarm.pop(self, None)
        if self.wait is not None:
            self.wait.end()
        if self.running is not None:
            self.running.remove(self.request, self.stream)

    def _count_failure(self, error: InferenceError) -> None:
        reason = self._reason(error)
        self.statistics.failures[reason] += 1
        if reason is FailureReason.CANCELED:
            self.statistics.cancelled[self.phase] += 1

    def _count_success(self, now: int) -> None:
        statistics = self.statistics
        if self.lookup_end:
            self._count_hit(now)
            return
        begun = self.compute_start or now
        output_start = self.compute_output_start or now
        input_end = self.compute_input_end or begun
        compute_input = input_end - begun
        compute_infer = output_start - input_end if output_start > input_end else 0
        end = self.compute_end or now
        compute_output = end - output_start if end > output_start else 0
        waited = begun - self.start
        statistics.succeeded(now - self.start, waited, compute_input, compute_infer, compute_output)
        if self.within is not None:
            self.within.add(compute_input, compute_infer, compute_output)
        statistics.inference_count += self.rows
        statistics.last_inference = time.time_ns() // 1_000_000

    def _count_hit(self, now: int) -> None:
        """Count a cache hit: a success without an execution (RC-08)."""
        statistics = self.statistics
        statistics.success.add(now - self.start)
        statistics.queue.add(self.lookup_start - self.start)
        statistics.cache_hit.add(self.lookup_end - self.lookup_start)

    def _reason(self, error: InferenceError) -> FailureReason:
        if isinstance(error, RequestCancelledError):
            return FailureReason.CANCELED
        if isinstance(error, RejectedError):
            return FailureReason.REJECTED
        return FailureReason.BACKEND if self.from_backend else FailureReason.OTHER


def _sent_by(request: InferenceRequest, tenant: str) -> bool:
    sender = request.scope.sender
    return sender is not None and sender.tenant == tenant


def start_batch(batch: Sequence[Inference], now: int, instance: str) -> None:
    """Mark the requests of a batch as taken by an instance, at `now` in monotonic nanoseconds."""
    record: Batch | None = None
    for inference in batch:
        inference.started(now)
        if inference.timeline is not None:
            if record is None:
                record = Batch(now, len(batch), sum(each.rows for each in batch), instance)
            record.add(inference.timeline)


async def wait_until_answered(inferences: Iterable[Inference]) -> None:
    """Wait until all of them have been answered or cancelled."""
    loop = asyncio.get_running_loop()
    ends: list[asyncio.Future[None]] = []
    for inference in list(inferences):
        if not inference.abandoned:
            ends.append(loop.create_future())
            inference.also_at_end(partial(_settle, ends[-1]))
    if ends:
        await asyncio.wait(ends)


def _settle(end: asyncio.Future[None]) -> None:
    if not end.done():
        end.set_result(None)


class BodyParts:
    """A transform that applies another one to parts of a body only."""

    __slots__ = ("_transform",)

    def __init__(self, transform: Transform) -> None:
        self._transform = transform

    def __call__(self, response: InferenceResponse) -> InferenceResponse:
        bodiless = isinstance(response, ExchangePart) and not response.body
        return response if bodiless else self._transform(response)


FIRST_RESPONSE = "FIRST_RESPONSE"


class TracedResponses:
    """A transform that notes the responses of a traced request, in front of another transform."""

    __slots__ = ("_count", "_timeline", "_transform")

    def __init__(self, timeline: Timeline, transform: Transform | None) -> None:
        self._timeline = timeline
        self._transform = transform
        self._count = 0

    def __call__(self, response: InferenceResponse) -> InferenceResponse:
        timeline = self._timeline
        self._count += 1
        if self._count == 1:
            timeline.mark(FIRST_RESPONSE, time.monotonic_ns())
        timeline.facts["responses"] = self._count
        if timeline.trace.takes_tensors:
            timeline.add_tensors("TENSOR_BACKEND_OUTPUT", response.outputs)
        return response if self._transform is None else self._transform(response)


class RunningRequests:
    """Streams by the `id` of their requests, and by the `call_id` of the calls they came with.

    Ids are the clients', so several requests may share one; requests without any are not kept.
    """

    def __init__(self) -> None:
        self._entries: dict[str, dict[ResponseStream, InferenceRequest]] = {}

    def add(self, request: InferenceRequest, stream: ResponseStream) -> None:
        """Keep a request that was admitted, until `remove`."""
        if request.id:
            self._entries.setdefault(request.id, {})[stream] = request
        if call_id := request.scope.call_id:
            self._entries.setdefault(call_id, {})[stream] = request

    def remove(self, request: InferenceRequest, stream: ResponseStream) -> None:
        """Forget a request, which has ended."""
        self._forget(request.id, stream)
        self._forget(request.scope.call_id, stream)

    def _forget(self, name: str, stream: ResponseStream) -> None:
        named = self._entries.get(name)
        if named is not None:
            named.pop(stream, None)
            if not named:
                del self._entries[name]

    def cancel(self, name: str, tenant: str | None = None) -> int:
        """Cancel the requests of this id; how many there were.

        With a `tenant`, those of others are left alone, as if they were not there.
        """
        named = self._entries.get(name, {})
        chosen = [
            stream
            for stream, request in named.items()
            if tenant is None or _sent_by(request, tenant)
        ]
        for stream in chosen:
            stream.abort(RequestCancelledError())
        return len(chosen)


class SingleAnswer:
    """Collects the responses of a stream by callbacks, without a task, until it has ended (G-34).

    Derived classes set `_stream`, have `_on_response` called by it, and send the answer; they
    release the request before they do.
    """

    __slots__ = ("_regions", "_request", "_responses", "_stream")

    def __init__(self, request: InferenceRequest, regions: Regions) -> None:
        self._request = request
        self._regions = regions
        self._responses: list[InferenceResponse] = []
        self._stream: ResponseStream | None = None

    def _on_response(self) -> None:
        stream = self._stream
        if stream is None:
            return
        self._responses += stream.take_ready()
        if stream.exhausted:
            self._answer(stream)

    def _answer(self, stream: ResponseStream) -> None:
        """Send the answer: `stream` has ended, with `_responses` or an error."""
        raise NotImplementedError

    def _cancel(self) -> None:
        """Cancel the request: its client has left."""
        stream = self._stream
        if stream is not None:
            self._release()
            stream.close()
            self._on_cancelled()

    def _on_cancelled(self) -> None:
        """Note in the request's timeline, if it has one, that it was cancelled."""
        raise NotImplementedError

    def _release(self) -> None:
        """Release the request's shared memory; nothing of the stream is looked at any more."""
        self._stream = None  # breaks the reference cycle
        if self._regions.entries:
            self._regions.release(self._request)
