"""Spans that a model makes with OpenTelemetry's API: they travel to the server, which exports them.

Imports OpenTelemetry's SDK, so it is itself imported only where requests may have spans.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import Token
from typing import Any

from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context, attach, detach
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace import Span as RecordedSpan
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags, TraceState

from penstock.core.timeline import MOST_MARKS, Fact, PlainSpan, Timeline

FindTimeline = Callable[[int, int], Timeline | None]
"""The timeline of a request in flight, by trace id and span id."""

SendRecorded = Callable[[Timeline], None]
"""Sends what is recorded of a request that is over."""

_MOST_OPEN = 4096
"""Spans that have begun and not ended, of all requests; a model may forget to end some."""

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_NO_CONTEXT = Context()


class OwnSpans:
    """Makes the server's span of a request, and its baggage, current in OpenTelemetry's API.

    The spans of this process are collected, unless the model has set a provider of its own.
    """

    def __init__(self, find: FindTimeline, send: SendRecorded) -> None:
        self._baggage = W3CBaggagePropagator()
        self._collector = SpanCollector(find, send)
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            trace.set_tracer_provider(_provider(self._collector))

    def remain(self, number: int) -> bool:
        """Whether spans of a request have not ended; then what it recorded is sent once they do."""
        return self._collector.remain(number)

    def attach(self, timeline: Timeline) -> Token[Context]:
        """Make it current; returns what `detach` takes."""
        return attach(self._context(timeline))

    def detach(self, token: Token[Context]) -> None:
        """Make the context current that was so before."""
        detach(token)

    def _context(self, timeline: Timeline) -> Context:
        caller = timeline.context
        state = TraceState.from_header([caller.state]) if caller.state else None
        own = SpanContext(caller.trace_id, caller.span_id, True, _SAMPLED, state)
        context = trace.set_span_in_context(NonRecordingSpan(own), _NO_CONTEXT)
        if caller.baggage:
            context = self._baggage.extract({"baggage": caller.baggage}, context)
        return context


def _provider(collector: SpanCollector) -> TracerProvider:
    provider = TracerProvider(
        sampler=ParentBased(ALWAYS_OFF),  # what is part of no request has nowhere to go
        resource=Resource.get_empty(),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(collector)
    return provider


class SpanCollector(SpanProcessor):
    """Puts finished spans into the timelines of the requests that they are part of.

    A span is part of the request that its parent is part of, or is; so with an explicit parent it
    may be part of any request in flight. Called by any thread of the model.
    """

    def __init__(self, find: FindTimeline, send: SendRecorded) -> None:
        self._find = find
        self._send = send
        self._open: dict[int, Timeline] = {}
        self._open_of: Counter[int] = Counter()
        self._over: set[int] = set()
        self._lock = threading.Lock()

    def remain(self, number: int) -> bool:
        """Whether spans of the request with this number are open; if so, it is over otherwise."""
        with self._lock:
            if number not in self._open_of:
                return False
            self._over.add(number)
            return True

    def on_start(self, span: RecordedSpan, parent_context: Context | None = None) -> None:
        parent, own = span.parent, span.get_span_context()
        if parent is None:
            return
        timeline = self._open.get(parent.span_id)
        if timeline is None:
            timeline = self._find(parent.trace_id, parent.span_id)
        if timeline is not None:
            if len(self._open) >= _MOST_OPEN:
                self._close(next(iter(self._open)))
            with self._lock:
                self._open[own.span_id] = timeline
                self._open_of[timeline.on_link] += 1

    def on_end(self, span: ReadableSpan) -> None:
        own = span.context
        timeline = None if own is None else self._open.get(own.span_id)
        if own is None or timeline is None:
            return
        if len(timeline.spans) < MOST_MARKS:
            timeline.spans.append(packed(span, timeline))
        else:
            dropped = timeline.facts.get("spans_dropped", 0)
            timeline.facts["spans_dropped"] = 1 + dropped  # type: ignore[operator]
        self._close(own.span_id)

    def _close(self, span_id: int) -> None:
        """Forget an open span; after the last one of a request that is over, send what it has."""
        with self._lock:
            if (timeline := self._open.pop(span_id, None)) is None:
                return
            number = timeline.on_link
            self._open_of[number] -= 1
            if self._open_of[number]:
                return
            del self._open_of[number]
            over = number in self._over
            self._over.discard(number)
        if over:
            self._send(timeline)


def packed(span: ReadableSpan, timeline: Timeline) -> PlainSpan:
    """The values of `tracing.spans.ModelSpan`, which are plain."""
    epoch = time.time_ns() - time.monotonic_ns()
    assert span.context is not None
    parent = 0 if span.parent is None else span.parent.span_id
    failed = span.status.status_code is StatusCode.ERROR
    attributes = _plain(span.attributes)
    if (scope := span.instrumentation_scope) is not None and scope.name:
        attributes["otel.scope.name"] = scope.name
    return (
        str(span.name),
        span.context.span_id,
        0 if parent == timeline.span_id else parent,
        (span.start_time or 0) - epoch,
        (span.end_time or 0) - epoch,
        attributes,
        [(str(e.name), e.timestamp - epoch, _plain(e.attributes)) for e in span.events],
        (span.status.description or "") if failed else None,
        span.kind.value,
        [(f"{link.context.trace_id:032x}", link.context.span_id) for link in span.links],
    )


def _plain(attributes: Mapping[str, Any] | None) -> dict[str, Fact]:
    return {str(name): _plain_value(value) for name, value in (attributes or {}).items()}


def _plain_value(value: Any) -> Fact:
    """The value as the class of Python that it derives from, as numpy's do; else as text."""
    if isinstance(value, list | tuple):
        return [str(each) for each in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return str(value)
