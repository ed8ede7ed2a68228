"""Spans of a trace, as OpenTelemetry names them: a pure view of timelines (T-11 to T-13, T-18).

Spans of batches, which several traces share, link to the requests in them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from penstock.core.timeline import Fact, new_id
from penstock.tracing.packed_trace import PackedTimeline, PackedTrace

Attributes = Mapping[str, Fact]

_NONE: Attributes = MappingProxyType({})

Event = tuple[str, int, Attributes]
"""Name, time, attributes."""


class Kind(IntEnum):
    """Kinds of spans, by the numbers of OpenTelemetry's API for Python."""

    INTERNAL = 0
    SERVER = 1
    CLIENT = 2
    PRODUCER = 3
    CONSUMER = 4


class ModelSpan(NamedTuple):
    """A span that a model made while it answered a request.

    In `Timeline.spans` and on the link it is a plain tuple of these values in this order. Times are
    in nanoseconds of `time.monotonic_ns`. `parent_id` is 0 for a child of the request's own span,
    otherwise the id of another of the model's spans. `error` is the description of a span that
    failed, `None` for one that did not. `kind` is a number of `Kind`; `links` are pairs of trace
    id, in hexadecimal digits, and span id.
    """

    name: str
    span_id: int
    parent_id: int
    begin: int
    end: int
    attributes: Attributes = _NONE
    events: Sequence[Event] = ()
    error: str | None = None
    kind: int = 0
    links: Sequence[tuple[str, int]] = ()


class SpanError(NamedTuple):
    """Why a span failed: the class of the error, and its text."""

    kind: str
    message: str


class Span(NamedTuple):
    """A span, ready to be exported; times are in nanoseconds since the epoch.

    `parent_id` is 0 for the first of a trace. `links` are pairs of trace and span id.
    """

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    begin: int
    end: int
    kind: Kind = Kind.INTERNAL
    attributes: Attributes = _NONE
    events: Sequence[Event] = ()
    links: Sequence[tuple[int, int]] = ()
    error: SpanError | None = None
    state: str = ""
    parent_is_remote: bool = False


REQUEST = "InferRequest"
"""The name of the endpoint's span (T-11)."""

_ENGINE = frozenset(("ENGINE_QUEUED", "PREFILL_START", "FIRST_TOKEN", "DECODE_END"))
"""Marks of engines that batch in flight, and go on after an execution has handed them a request."""

_OWN_EVENTS = _ENGINE | {"REQUEST_START", "QUEUE_START", "REQUEST_END"}
"""Marks that are events of the span of a model's request, as are those after its compute span."""

_PHASES = (
    ("engine queue", "ENGINE_QUEUED", "PREFILL_START"),
    ("prefill", "PREFILL_START", "FIRST_TOKEN"),
    ("decode", "FIRST_TOKEN", "DECODE_END"),
)
"""Phases of an engine that begin and end with marks of their own names."""

_OWN_PAIRS = ("REQUEST_", "QUEUE_", "COMPUTE_")

_NAMES = {"CACHE_LOOKUP": "cache lookup"}


def spans(packed: PackedTrace) -> Iterator[Span]:
    """The spans of one trace, parents first."""
    trace_id, state, caller, epoch, dropped, timelines = packed
    root, *requests = (PackedTimeline(*each) for each in timelines)
    yield from _Endpoint(root, caller, dropped).spans(trace_id, state, epoch)
    for each in requests:
        yield from _Request(each).spans(trace_id, state, epoch)


class _View(ABC):
    """Makes the spans of one timeline, with its times on the monotonic clock."""

    def __init__(self, timeline: PackedTimeline) -> None:
        self._timeline = timeline
        self._marks = sorted(timeline.marks, key=lambda mark: mark[1])
        self._at = dict(reversed(self._marks))  # where a mark repeats, its first time counts

    def spans(self, trace_id: int, state: str, epoch: int) -> Iterator[Span]:
        """The spans, with their times on the clock since the epoch."""
        for span in self._spans():
            yield span._replace(
                trace_id=trace_id,
                state=state,
                begin=span.begin + epoch,
                end=max(span.begin, span.end) + epoch,
                events=[(name, at + epoch, facts) for name, at, facts in span.events],
            )

    @abstractmethod
    def _spans(self) -> Iterator[Span]:
        """The spans, with their times on the monotonic clock."""


class _Endpoint(_View):
    """The part of the endpoint: `InferRequest`, below the caller's span."""

    def __init__(self, timeline: PackedTimeline, caller: int, dropped: int) -> None:
        super().__init__(timeline)
        self._caller = caller
        self._dropped = dropped

    def _spans(self) -> Iterator[Span]:
        timeline = self._timeline
        attributes = endpoint_attributes(timeline.facts)
        if self._dropped:
            attributes["penstock.requests_not_recorded"] = self._dropped
        yield Span(
            REQUEST,
            0,
            timeline.span_id,
            self._caller,
            timeline.begin,
            timeline.end,
            Kind.SERVER,
            _with_error(attributes, timeline.error),
            [(name, at, {}) for name, at in self._marks],
            error=_error(timeline.error),
            parent_is_remote=bool(self._caller),
        )
        yield from _made_by_model(timeline)


class _Opened(NamedTuple):
    """A custom activity that has begun inside of others."""

    base: str
    begin: int
    span_id: int
    above: list[int]


class _Request(_View):
    """A request to a model: its span, and those of its phases below it."""

    @property
    def _no_others(self) -> frozenset[str]:
        """Marks that are no events of `compute`; the first response is one where more follow."""
        alone = self._timeline.facts.get("responses") == 1
        return _OWN_EVENTS | {"FIRST_RESPONSE"} if alone else _OWN_EVENTS

    def _spans(self) -> Iterator[Span]:
        compute = self._compute()
        inner = new_id(64) if compute else self._timeline.span_id
        pairs = list(self._pairs(inner))
        paired = {name for span in pairs for name, _, _ in span.events}
        others = [
            mark for mark in self._marks if mark[0] not in self._no_others and mark[0] not in paired
        ]
        inside = [] if compute is None else [mark for mark in others if mark[1] <= compute.end]
        yield self._own([mark for mark in others if mark not in inside])
        if compute:
            yield compute._replace(span_id=inner, events=self._events(inside))
        yield from pairs
        yield from self._phases()
        yield from _made_by_model(self._timeline)

    def _own(self, others: Sequence[tuple[str, int]]) -> Span:
        """The request's own span, named after the model, with Triton's attributes (T-12)."""
        timeline = self._timeline
        attributes: dict[str, Fact] = {
            "triton.model_name": timeline.model,
            "triton.model_version": model_version(timeline.version),
            "triton.trace_id": timeline.number,
            "triton.trace_parent_id": timeline.parent_number,
        }
        if timeline.request_id:
            attributes["triton.request_id"] = timeline.request_id
        attributes |= named(timeline.facts)
        marks = [mark for mark in self._marks if mark[0] in _OWN_EVENTS or mark in others]
        return Span(
            timeline.model,
            0,
            timeline.span_id,
            timeline.parent_id,
            timeline.begin,
            timeline.end,
            Kind.INTERNAL,
            _with_error(attributes, timeline.error),
            self._events(marks),
            error=_error(timeline.error),
        )

    def _compute(self) -> Span | None:
        """The execution, linked to the batch that it was part of."""
        begin = self._at.get("COMPUTE_START")
        if begin is None:
            return None
        timeline, batch = self._timeline, self._timeline.batch
        end = self._at.get("COMPUTE_END") or timeline.end
        span = self._child("compute", begin, end, error=_error(timeline.error))
        if batch is None:
            return span
        trace_id, span_id, _, _, requests, rows, instance, _ = batch
        attributes: dict[str, Fact] = {
            "penstock.batch.requests": requests,
            "penstock.batch.rows": rows,
            "penstock.instance": instance,
        }
        links = [(trace_id, span_id)] if requests > 1 else []
        return span._replace(attributes=attributes, links=links)

    def _pairs(self, parent: int) -> Iterator[Span]:
        """A span for each pair of marks NAME_START and NAME_END, nested as they are (T-18)."""
        opened: list[_Opened] = []
        closed: list[tuple[_Opened, Span]] = []
        for name, at in self._marks:
            base, _, ending = name.rpartition("_")
            if name.startswith(_OWN_PAIRS):
                continue
            if ending == "START":
                opened.append(_Opened(base, at, new_id(64), [each.span_id for each in opened]))
            elif ending == "END" and any(each.base == base for each in opened):
                while opened[-1].base != base:  # its end is missing
                    opened.pop()
                one = opened.pop()
                own = self._child(_NAMES.get(base, base), one.begin, at)
                events = self._events([(base + "_START", one.begin), (name, at)])
                closed.append((one, own._replace(span_id=one.span_id, events=events)))
        known = {one.span_id for one, _ in closed}
        for one, span in closed:
            above = [each for each in one.above if each in known]
            outer = self._timeline.span_id if one.base in _NAMES else parent
            yield span._replace(parent_id=above[-1] if above else outer)

    def _phases(self) -> Iterator[Span]:
        """Phases of an engine, as far as they came."""
        at = self._at
        for name, first, last in _PHASES:
            if first in at:
                end = at.get(last, self._timeline.end)
                yield self._child(name, at[first], end)

    def _child(self, name: str, begin: int, end: int, *, error: SpanError | None = None) -> Span:
        return Span(name, 0, new_id(64), self._timeline.span_id, begin, end, error=error)

    def _events(self, marks: Sequence[tuple[str, int]]) -> list[Event]:
        return [(name, at, self._about(name, at)) for name, at in marks]

    def _about(self, name: str, at: int) -> Attributes:
        """The attributes of an event: seconds to the first token where it is that."""
        if name != "FIRST_TOKEN":
            return {}
        return {"gen_ai.server.time_to_first_token": (at - self._timeline.begin) / 1e9}


def _made_by_model(timeline: PackedTimeline) -> Iterator[Span]:
    """The spans that the model itself made."""
    for each in timeline.spans:
        made = ModelSpan(*each)
        yield Span(
            made.name,
            0,
            made.span_id,
            made.parent_id or timeline.span_id,
            made.begin,
            made.end,
            Kind(made.kind),
            made.attributes,
            made.events,
            [(int(trace_id, 16), span_id) for trace_id, span_id in made.links],
            error=None if made.error is None else SpanError("", made.error),
        )


def model_version(text: str) -> Fact:
    """The version as the real server tells it: a number."""
    return int(text) if text.isdecimal() else text


def _error(packed: tuple[str, str] | None) -> SpanError | None:
    return None if packed is None else SpanError(*packed)


def _with_error(attributes: dict[str, Fact], packed: tuple[str, str] | None) -> dict[str, Fact]:
    """The attributes with the semantic conventions' `error.type`."""
    return attributes if packed is None else {**attributes, "error.type": packed[0]}


_PEER = re.compile(r"(ipv[46]):\[?(.*?)\]?:([0-9]+)")
_ROUTE = re.compile(r"(/v2/models/)[^/]+(?:(/versions/)[^/]+)?(/.*)?")


def named(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Facts under the names of conventions, which have a dot in them, or else under our own."""
    return {name if "." in name else f"penstock.{name}": fact for name, fact in facts.items()}


def endpoint_attributes(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """The facts of the endpoint, with the peer's address taken apart and the path's route."""
    attributes = named(facts)
    peer = attributes.get("network.peer.address")
    if isinstance(peer, str):
        attributes |= _peer(peer)
    path = attributes.get("url.path")
    if isinstance(path, str) and (found := _ROUTE.fullmatch(path)):
        models, versions, rest = found.groups("")
        version = f"{versions}{{version}}" if versions else ""
        attributes["http.route"] = f"{models}{{model}}{version}{rest}"
    return attributes


def _peer(peer: str) -> dict[str, Fact]:
    """Address, port and kind of network of a peer as gRPC names it: `ipv4:HOST:PORT`."""
    if found := _PEER.fullmatch(peer):
        kind, host, port = found.groups()
        return {
            "network.type": kind,
            "network.transport": "tcp",
            "network.peer.address": host,
            "network.peer.port": int(port),
        }
    if peer.startswith("unix:"):
        return {"network.transport": "unix", "network.peer.address": peer.removeprefix("unix:")}
    return {}


PATIENCE = 5.0
"""Seconds that a batch waits for traces of its requests; some may be dropped, or not be sampled."""

_MOST = 1024


@dataclass(slots=True)
class _Waiting:
    span: Span
    epoch: int  # of the first trace; those of others differ by a little
    missing: int
    since: float
    links: list[tuple[int, int]] = field(default_factory=list)


class BatchSpans:
    """Collects the requests of batches from traces as they come. Knows no clock.

    A batch is a span of a trace of its own, since it has as many parents as requests; it links to
    them, and each of their compute spans links to it. An execution of one request has no such span.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, packed: PackedTrace, now: float) -> Iterator[Span]:
        """The spans of batches that are complete with this trace."""
        trace_id, _, _, epoch, _, timelines = packed
        for each in timelines:
            timeline = PackedTimeline(*each)
            if timeline.batch is not None and timeline.batch[4] > 1:
                yield from self._add(timeline, trace_id, epoch, now)

    def due(self, now: float) -> Iterator[Span]:
        """The spans of batches that have waited long enough, or are too many."""
        for key, waiting in list(self._waiting.items()):
            if now - waiting.since < PATIENCE and len(self._waiting) <= _MOST:
                return
            yield self._taken(key)

    def rest(self) -> Iterator[Span]:
        """The spans of all batches, complete or not."""
        for key in list(self._waiting):
            yield self._taken(key)

    def _add(
        self, timeline: PackedTimeline, trace_id: int, epoch: int, now: float
    ) -> Iterator[Span]:
        assert timeline.batch is not None
        batch_trace, span_id, begin, end, requests, rows, instance, traced = timeline.batch
        waiting = self._waiting.get(span_id)
        if waiting is None:
            span = Span(
                f"batch {timeline.model}",
                batch_trace,
                span_id,
                0,
                begin + epoch,
                max(begin, end) + epoch,
                attributes={
                    "triton.model_name": timeline.model,
                    "triton.model_version": model_version(timeline.version),
                    "penstock.batch.requests": requests,
                    "penstock.batch.rows": rows,
                    "penstock.instance": instance,
                },
            )
            waiting = self._waiting[span_id] = _Waiting(span, epoch, traced, now)
        waiting.span = waiting.span._replace(end=max(waiting.span.end, end + waiting.epoch))
        waiting.links.append((trace_id, timeline.span_id))
        waiting.missing -= 1
        if not waiting.missing:
            yield self._taken(span_id)

    def _taken(self, key: int) -> Span:
        waiting = self._waiting.pop(key)
        return waiting.span._replace(links=waiting.links)
