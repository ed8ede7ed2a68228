"""`GenerationTimes`: the times of one request, in its engine's histograms and its own timeline."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from penstock.backend import InferenceRequest
from penstock_backends.language_model.generation_record import GenerationRecord
from penstock_backends.language_model.statistics import EngineStatistics
from penstock_backends.language_model.usage import UsageReporter

_RECENT = 8
"""Outputs that are remembered: an engine learns within one of its steps that a client has left."""


class GenerationTimes:
    """Observes one request, whose steps an engine reports: histograms and timeline agree.

    `candidates` texts are made of it. `clock` is in nanoseconds. `trace_id`, of a request whose
    trace is exported, becomes an exemplar. `record` is that of a traced request, `usage` that of
    one whose tokens are reported, `tenant` the label of its tenant. `waited` are the nanoseconds
    before the engine had it that count as well. `latest` is when its last output came.
    """

    __slots__ = (
        "_begun",
        "_candidates",
        "_clock",
        "_first",
        "_last",
        "_prompt",
        "_recent",
        "_record",
        "_statistics",
        "_tenant",
        "_trace_id",
        "_usage",
        "_waited",
        "_waits",
        "latest",
        "tokens",
    )

    def __init__(
        self,
        statistics: EngineStatistics,
        prompt: int,
        trace_id: str = "",
        clock: Callable[[], int] = time.monotonic_ns,
        record: GenerationRecord | None = None,
        usage: UsageReporter | None = None,
        candidates: int = 1,
        tenant: str = "",
        waited: int = 0,
    ) -> None:
        self._candidates = candidates
        self._waited = waited
        self._tenant = tenant
        self._recent: deque[tuple[int, int]] = deque(maxlen=_RECENT)
        self._statistics = statistics
        self._prompt = prompt
        self._trace_id = trace_id
        self._clock = clock
        self._record = record
        self._usage = usage
        self._begun = self._first = self._last = self.latest = 0
        self._waits = True
        self.tokens = 0

    def has_prompt(self, tokens: int) -> None:
        """Note the length of the prompt, where it was not known at the beginning."""
        self._prompt = tokens
        if self._usage is not None:
            self._usage.prompt = tokens

    def queued(self) -> None:
        """Note that the engine has the request."""
        now = self._clock()
        self._begun = now - self._waited
        if self._record is not None:
            self._record.queued(now)

    def scheduled(self) -> None:
        """Note its first place in the engine; later calls, for further candidates, do nothing."""
        if self._waits:
            now = self._clock()
            self._observe("queue_seconds", _seconds(now - self._begun))
            self._waits = False
            if self._usage is not None:
                self._usage.begun = True
            if self._record is not None:
                self._record.scheduled(now)

    def output(self, tokens: int, *, finished: bool) -> None:
        """Note the tokens of one step of the engine; `finished` with the last step."""
        now = self.latest = self._clock()
        if tokens:
            if self.tokens:
                self._observe("inter_token_seconds", _seconds(now - self._last))
            else:
                self._observe("time_to_first_token_seconds", _seconds(now - self._begun))
                self._first = now
            self._last = now
            self._recent.append((now, tokens))
            self.tokens += tokens
            if self._record is not None:
                self._record.produced(self.tokens, now)
        if self._usage is not None:
            self._usage.add(tokens, finished=finished)
        if finished:
            self._observe("request_seconds", _seconds(now - self._begun))
            self._observe("prompt_tokens", self._prompt)
            self._observe("generated_tokens", self.tokens)
            if (more := self.tokens - self._candidates) > 0:
                each = _seconds(now - self._first) * self._candidates / more
                self._observe("time_per_output_token_seconds", each)

    def left(self, at: int) -> None:
        """Count what was made after the client had left, `at` this time; 0 if that is not known."""
        self.cut_off()
        if not at:
            return
        wasted = sum(tokens for then, tokens in self._recent if then > at)
        self._statistics.wasted_tokens += wasted
        if self._record is not None:
            self._record.wasted(wasted)

    def cut_off(self) -> None:
        """Report tokens that were not yet reported: no more will come."""
        if self._usage is not None:
            self._usage.cut_off()

    def _observe(self, name: str, number: float) -> None:
        self._statistics.observe(name, number, self._trace_id, self._tenant)


def _seconds(nanoseconds: int) -> float:
    return nanoseconds / 1e9


def exemplar_id(request: InferenceRequest) -> str:
    """The id under which the trace of a request is found; empty if it is not exported."""
    timeline = request.scope.timeline
    return timeline.trace.text_id if timeline is not None and timeline.trace.propagated else ""


def tenant_label(request: InferenceRequest) -> str:
    """The label of a request's tenant in metrics; empty where the server has no tenants."""
    sender = request.scope.sender
    return "" if sender is None else sender.label
