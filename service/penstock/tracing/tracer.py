"""`Tracer`: decides which requests are traced, and hands finished traces to where they go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Protocol

from penstock.core.timeline import Timeline, Trace, TraceContext
from penstock.tracing.propagation import Fields, read_context
from penstock.tracing.sampling import Sampled, Sampling


class Sampler(Protocol):
    """Decides which requests are traced."""

    @property
    def active(self) -> bool:
        """Whether any request may be."""

    def sample(self, model: str, propagated: bool | None, trace_id: int) -> Sampled | None:
        """Whether, and with which levels, to record a request.

        `propagated`: the caller's W3C flag "sampled"; `None` without a trace context, whose
        `trace_id` is 0 then.
        """


class TraceSink(Protocol):
    """Takes finished traces."""

    def submit(self, trace: Trace) -> None:
        """Take a trace; must neither wait nor raise, and keeps a bounded number of them."""


class Tracer:
    """Starts the traces of requests.

    `propagates` says whether the W3C context of traces is forwarded to models: in the OpenTelemetry
    mode (T-17).
    """

    def __init__(
        self, sampler: Sampler, sinks: Iterable[TraceSink] = (), *, propagates: bool = False
    ) -> None:
        self._sampler = sampler
        self._sinks = tuple(sinks)
        self._numbers = count(1)
        self.propagates = propagates

    @property
    def active(self) -> bool:
        """Whether any request may be traced; while not, frontends need not ask for each."""
        return self._sampler.active

    def begin(
        self,
        model: str,
        headers: Mapping[str, str],
        now: int,
        *,
        explains: bool = False,
        fields: Fields = (),
    ) -> Timeline | None:
        """The endpoint's timeline of a request that came with `headers`; `None` if not traced.

        `now` is when it began to come in; one that is to be explained is recorded in any case.
        `fields` are all headers, where names may repeat.
        """
        caller = read_context(headers, fields)
        sampled = self._sample(model, caller) if self._sampler.active else None
        if sampled is None and not explains:
            return None
        levels = frozenset[str]() if sampled is None else sampled.levels
        trace = Trace(
            now,
            levels,
            caller,
            self._numbers,
            self._ended,
            propagated=self.propagates and bool(levels),
            sampled_by=None if sampled is None else sampled.sampling,
        )
        return trace.root

    def _sample(self, model: str, caller: TraceContext | None) -> Sampled | None:
        if caller is None:
            return self._sampler.sample(model, None, 0)
        return self._sampler.sample(model, caller.sampled, caller.trace_id)

    def _ended(self, trace: Trace) -> None:
        by = trace.sampled_by
        if trace.levels or (isinstance(by, Sampling) and by.keeps(trace)):
            for sink in self._sinks:
                sink.submit(trace)


class _NoSampler:
    """Samples nothing."""

    active = False

    def sample(self, model: str, propagated: bool | None, trace_id: int) -> Sampled | None:
        return None


UNTRACED = Tracer(_NoSampler())
"""A tracer of no request but those whose clients ask for an explanation."""
