"""`Timeline`: what happened to one request, and when; recorded only where a request is traced.

A client's request has a `Trace`. Its `root` is the part of the endpoint; below it is a timeline for
each request to a model that was made for it: the client's own, the steps of ensembles, and the
calls of models (BLS). Trace files, OpenTelemetry spans and explanations are views of it. Times are
in nanoseconds, of `time.monotonic_ns`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import getrandbits
from typing import Any, NamedTuple

from penstock.core.errors import InferenceError
from penstock.core.tensor import Tensor

Fact = bool | int | float | str | list[str]
"""A value that OpenTelemetry takes for an attribute."""

PlainSpan = tuple[Any, ...]
"""A span that a model has made itself, as the values of `tracing.spans.ModelSpan`."""

MOST_MARKS = 256
"""Marks of one timeline; a stream of tokens has two for each response."""

NOTHING_RECORDED: tuple[Any, ...] = (), {}, ()
"""As `Timeline.take_recorded` returns it, to be sent where an answer is awaited."""

WAITED_FOR_LOAD = "waited_for_load_us"
"""The fact of a request that waited for the load of a model: microseconds."""

MOST_TIMELINES = 1024
"""Requests of one trace; a model that calls others in a loop may make any number."""


class TraceContext(NamedTuple):
    """A span of a caller, as the W3C trace context names it; ids are unsigned, of 128 and 64 bits.

    `state` and `baggage` are the texts of the headers `tracestate` and `baggage`.
    """

    trace_id: int
    span_id: int
    sampled: bool = True
    state: str = ""
    baggage: str = ""

    @property
    def traceparent(self) -> str:
        """The header of this name."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.sampled:02x}"

    @property
    def headers(self) -> dict[str, str]:
        """The W3C headers by their names; without those that would be empty."""
        headers = {"traceparent": self.traceparent}
        if self.state:
            headers["tracestate"] = self.state
        if self.baggage:
            headers["baggage"] = self.baggage
        return headers


class Batch:
    """An execution of several requests: shared by the timelines of those that are traced."""

    __slots__ = ("begin", "end", "instance", "requests", "rows", "span_id", "trace_id", "traced")

    def __init__(self, begin: int, requests: int, rows: int, instance: str) -> None:
        self.begin = begin
        self.end = 0
        self.requests = requests
        self.rows = rows
        self.instance = instance
        self.trace_id = new_id(128)
        self.span_id = new_id(64)
        self.traced = 0

    def add(self, timeline: Timeline) -> None:
        """Note that a traced request is in the batch."""
        self.traced += 1
        timeline.batch = self


class TracedTensor(NamedTuple):
    """A tensor at one point of its way; `activity` is Triton's name of the point (T-09)."""

    activity: str
    name: str
    tensor: Tensor
    at: int


class Timeline:
    """The marks of one request, in order, and facts about it.

    `model` is empty for the endpoint's part of a trace. `number` is Triton's trace id, 0 for the
    endpoint. `end` is 0 until the request has ended, with `error` if it failed.
    """

    __slots__ = (
        "batch",
        "begin",
        "end",
        "error",
        "facts",
        "marks",
        "model",
        "number",
        "on_link",
        "parent",
        "request_id",
        "span_id",
        "spans",
        "tensors",
        "trace",
        "version",
    )

    def __init__(
        self,
        trace: Trace,
        begin: int,
        parent: Timeline | None = None,
        number: int = 0,
        model: str = "",
        version: str = "",
        request_id: str = "",
    ) -> None:
        self.trace = trace
        self.parent = parent
        self.number = number
        self.model = model
        self.version = version
        self.request_id = request_id
        self.span_id = new_id(64)
        self.begin = begin
        self.end = 0
        self.error: InferenceError | None = None
        self.marks: list[tuple[str, int]] = []
        self.facts: dict[str, Fact] = {}
        self.tensors: list[TracedTensor] = []
        self.spans: list[PlainSpan] = []
        self.batch: Batch | None = None
        self.on_link = 0

    @property
    def context(self) -> TraceContext:
        """What requests on behalf of this one carry."""
        trace = self.trace
        return TraceContext(
            trace.trace_id, self.span_id, trace.propagated, trace.state, trace.baggage
        )

    def mark(self, activity: str, at: int = 0) -> None:
        """Note that something happened, now or at the given time."""
        if len(self.marks) < MOST_MARKS:
            self.marks.append((activity, at or time.monotonic_ns()))

    def nest(self, model: str, version: str, request_id: str, begin: int) -> Timeline:
        """A timeline for a request that is made on behalf of this one."""
        return self.trace.open(self, model, version, request_id, begin)

    def add_tensors(self, activity: str, tensors: Mapping[str, Tensor]) -> None:
        """Note copies of tensors, since their memory is used again."""
        now = time.monotonic_ns()
        for name, tensor in tensors.items():
            copy = Tensor(tensor.datatype, tensor.shape, bytes(tensor.buffer))
            self.tensors.append(TracedTensor(activity, name, copy, now))

    def finish(self, error: InferenceError | None = None, at: int = 0) -> None:
        """Note the end of the request; only the first call does. The last one ends the trace."""
        if self.end:
            return
        self.end = at or time.monotonic_ns()
        self.error = error
        self.trace.release()

    # -- over the link of a model process -------------------------------------------------------

    def reference(self) -> tuple[str, str, str] | int:
        """What stands for the timeline in a request that is sent to another process.

        To a model process: `traceparent`, `tracestate` and `baggage`. From one, in a call of a
        model: the number of the request that it is made for.
        """
        if self.on_link:
            return self.on_link
        context = self.context
        return context.traceparent, context.state, context.baggage

    def take_recorded(self) -> tuple[Any, ...] | None:
        """What a model process has recorded since the last call, to be sent; `None` for nothing."""
        if not (self.marks or self.facts or self.spans):
            return None
        recorded = self.marks, self.facts, self.spans
        self.marks, self.facts, self.spans = [], {}, []
        return recorded

    def add_recorded(
        self,
        marks: Sequence[tuple[str, int]],
        facts: Mapping[str, Fact],
        spans: Sequence[PlainSpan],
    ) -> None:
        """Add what a model process has recorded."""
        self.marks += marks[: MOST_MARKS - len(self.marks)]
        self.facts |= facts
        self.spans += spans[: MOST_MARKS - len(self.spans)]


OnEnd = Callable[["Trace"], None]


class Trace:
    """The timelines of one request of a client.

    `caller` is the span that the client sent; without one the trace is a new one. `levels` are
    those of the trace settings; empty for a trace that only its client asked for, or whose end
    decides. `propagated` is the W3C flag "sampled" of requests on its behalf. `on_end` is called
    once everything has ended; `sampled_by` is what its sampler wants to find in it then.
    """

    __slots__ = (
        "_next_number",
        "_on_end",
        "_unfinished",
        "baggage",
        "caller",
        "dropped",
        "levels",
        "propagated",
        "root",
        "sampled_by",
        "state",
        "timelines",
        "trace_id",
    )
    __deletable__ = ("root",)  # mypyc demands it for `forget`

    def __init__(
        self,
        begin: int,
        levels: frozenset[str] = frozenset(),
        caller: TraceContext | None = None,
        numbers: Iterator[int] | None = None,
        on_end: OnEnd | None = None,
        *,
        propagated: bool = False,
        sampled_by: object = None,
    ) -> None:
        self.levels = levels
        self.caller = caller
        self.propagated = propagated
        self.sampled_by = sampled_by
        if caller is None:
            self.trace_id, self.state, self.baggage = new_id(128), "", ""
        else:
            self.trace_id = caller.trace_id
            self.state, self.baggage = caller.state, caller.baggage
        self._next_number = numbers
        self._on_end = on_end
        self._unfinished = 1
        self.dropped = 0
        self.timelines: list[Timeline] = []
        self.root = Timeline(self, begin)

    @property
    def text_id(self) -> str:
        """The trace id as W3C writes it."""
        return f"{self.trace_id:032x}"

    @property
    def takes_tensors(self) -> bool:
        """Whether the contents of tensors are recorded."""
        return "TENSORS" in self.levels

    def open(
        self, parent: Timeline, model: str, version: str, request_id: str, begin: int
    ) -> Timeline:
        """A timeline below `parent`; beyond the limit of a trace it is counted and not kept."""
        number = next(self._next_number) if self._next_number is not None else 0
        timeline = Timeline(self, begin, parent, number, model, version, request_id)
        self._unfinished += 1
        if len(self.timelines) < MOST_TIMELINES:
            self.timelines.append(timeline)
        else:
            self.dropped += 1
        return timeline

    def forget(self) -> None:
        """Let go of the timelines of a trace that has ended and was read.

        They refer to the trace, so that otherwise only the garbage collector frees them: late, and
        at a price that requests pay.
        """
        self.timelines = []
        del self.root

    def hold(self) -> None:
        """Keep the trace from ending until `release`, since more of it may become known."""
        self._unfinished += 1

    def release(self) -> None:
        """Undo `hold`, or end a timeline; the trace ends here if everything else has ended."""
        self._unfinished -= 1
        if not self._unfinished:
            on_end, self._on_end = self._on_end, None
            if on_end is not None:
                on_end(self)


def new_id(bits: int) -> int:
    """A random id that is not 0."""
    return getrandbits(bits) or 1


def received_timeline(reference: tuple[str, str, str], number: int) -> Timeline:
    """The timeline of a request in a model process, where it has this `number` on the link."""
    traceparent, state, baggage = reference
    _, trace_id, span_id, flags = traceparent.split("-")
    caller = TraceContext(int(trace_id, 16), int(span_id, 16), flags == "01", state, baggage)
    timeline = Trace(0, caller=caller, propagated=caller.sampled).root
    timeline.span_id = caller.span_id  # the server's span, so that the model's own are below it
    timeline.on_link = number
    return timeline
