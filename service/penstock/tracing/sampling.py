"""`Sampling`: which requests are traced under one set of trace settings (T-06, T-16)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.core.errors import RequestCancelledError
from penstock.core.timeline import Trace
from penstock.settings import TraceSettings

_TRACE_ID_PART = 1 << 64
"""OpenTelemetry's ratio sampler compares the lower half of a trace id with the ratio."""


class Sampling:
    """Settings in force, with the counters of the requests that they apply to.

    Settings that replace others count from the start, as in Triton. `count` is what is left of the
    number of traces to make, negative for no limit, `sampled` is how many the rate picked so far,
    and `ended` how many of these have ended. Knows no clock; `uniform` draws numbers from 0 to 1
    for the ratio.
    """

    def __init__(
        self, settings: TraceSettings, uniform: Callable[[], float] = random.random
    ) -> None:
        self.settings = settings
        self.count = settings.count
        self.sampled = 0
        self.ended = 0
        self._retired = False
        self._seen = 0
        self._uniform = uniform
        self._exports = settings.mode == "opentelemetry"
        self._sampler = settings.opentelemetry.sampler
        self._ratio = settings.opentelemetry.ratio
        # Spans have no tensors, so that any level is that of timestamps there.
        self.levels = (
            frozenset({"TIMESTAMPS"}) if self._exports and settings.levels else settings.levels
        )
        self._kept = Sampled(self.levels, self)
        self._undecided = Sampled(frozenset(), self)
        self._complete = bool(settings.levels) and (self._exports or bool(settings.file))
        self.tail_rule = self._exports and self._complete and settings.opentelemetry.tail_rule

    @property
    def live(self) -> TraceSettings:
        """The settings with what is left of the count."""
        return replace(self.settings, count=self.count)

    @property
    def active(self) -> bool:
        """Whether any further request may be recorded."""
        if not self._complete:
            return False
        if self._exports:
            return self._sampler != "always_off" or self.tail_rule
        return self.settings.rate > 0 and self.count != 0

    @property
    def complete(self) -> bool:
        """Whether no further trace will end: none is under way, and none can begin."""
        return self.ended >= self.sampled and (self._retired or not self.count)

    @property
    def used_up(self) -> bool:
        """Whether as many traces as were asked for have ended."""
        return not self.count and self.ended >= self.sampled

    def retire(self) -> None:
        """Note that the settings are not in force any more."""
        self._retired = True

    def end(self) -> None:
        """Note that a trace has ended."""
        self.ended += 1

    def sample(self, propagated: bool | None = None, trace_id: int = 0) -> Sampled | None:
        """Whether to record a request, which is counted.

        `propagated` is the caller's W3C flag "sampled", `None` without a trace context, whose
        `trace_id` is 0 then. In the OpenTelemetry mode a request with a context is always sampled,
        whatever its flag, and counts as others do; samplers that are based on the parent follow the
        flag.
        """
        if not self._complete:
            return None
        if self._passes(propagated, trace_id):
            hit = self._take()
            if hit or (self._exports and propagated is not None):
                return self._kept
        return self._undecided if self.tail_rule else None

    def keeps(self, trace: Trace) -> bool:
        """Whether a trace that was not sampled is kept because of how it ended (tail rule)."""
        rule = self.settings.opentelemetry
        error = trace.root.error
        failed = error is not None and not isinstance(error, RequestCancelledError)
        if failed and rule.always_on_error:
            return True
        took = (trace.root.end - trace.root.begin) / 1e6
        return 0 < rule.slow_threshold_ms <= took

    def _passes(self, propagated: bool | None, trace_id: int) -> bool:
        """What the sampler says, if there is one."""
        if not self._exports or not self._sampler:
            return True
        kind = self._sampler.removeprefix("parentbased_")
        if kind != self._sampler and propagated is not None:
            return propagated
        if kind == "traceidratio":
            if propagated is None:
                return self._uniform() < self._ratio
            return trace_id % _TRACE_ID_PART < round(self._ratio * _TRACE_ID_PART)
        return kind == "always_on"

    def _take(self) -> bool:
        """Count a request; whether it is one in so many, and the count is not used up."""
        if not self.settings.rate:
            return False
        self._seen += 1
        if self._seen % self.settings.rate or not self.count:
            return False
        if self.count > 0:
            self.count -= 1
        self.sampled += 1
        return True


@dataclass(frozen=True, slots=True)
class Sampled:
    """A request to record. Without `levels` its end decides whether the trace is kept."""

    levels: frozenset[str]
    sampling: Sampling
