"""`GenerationRecord`: the generation of a traced request, in the timeline of that request.

Facts are attributes of OpenTelemetry's semantic conventions for generative AI, or begin with
`penstock.llm.`. Prompts, texts and stop strings are never recorded.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from penstock.backend import InferenceRequest, Timeline
from penstock_backends.language_model.answer import Candidate
from penstock_backends.language_model.request import GenerationRequest

ENGINE_QUEUED: Final = "ENGINE_QUEUED"
"""The engine has the request, which waits for its turn there."""
PREFILL_START: Final = "PREFILL_START"
"""The engine has scheduled the request for the first time."""
FIRST_TOKEN: Final = "FIRST_TOKEN"
DECODE_END: Final = "DECODE_END"
"""The last token was made; of a request that was cancelled or failed, the end of its generation."""

CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
PREEMPTIONS: Final = "penstock.llm.preemptions"
TIME_TO_FIRST_TOKEN: Final = "penstock.llm.time_to_first_token_ms"
"""Milliseconds, as in the histogram `penstock_llm_time_to_first_token_seconds`."""
QUEUE_TIME: Final = "penstock.llm.queue_time_ms"
"""From `ENGINE_QUEUED` to `PREFILL_START`, and the wait in the server for the tenant's turn."""
TIME_PER_TOKEN: Final = "penstock.llm.time_per_output_token_ms"
"""Of a token after the first, on average: from `FIRST_TOKEN` to `DECODE_END`."""
TOTAL_TIME: Final = "penstock.llm.total_time_ms"
"""From `ENGINE_QUEUED` to `DECODE_END`, and the wait in the server for the tenant's turn."""
WASTED_TOKENS: Final = "penstock.llm.wasted_tokens"
TOKENS_PER_SECOND: Final = "penstock.llm.decode_tokens_per_second"
"""Tokens after the first of each candidate, by the seconds from `FIRST_TOKEN` to `DECODE_END`."""

_SAMPLING: Final = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
}
"""Sampling parameters that are recorded where the client gives them, and their attributes."""

_LARGEST: Final = (1 << 63) - 1
"""The largest integer of an attribute."""


class GenerationRecord:
    """Writes the marks and facts of one generation to the timeline of its request.

    `provider` is the engine; `model` is the name of what answers, where it is not the request's.
    Times are in nanoseconds of `time.monotonic_ns`; 0 is now. Tokens are those that the engine's
    metrics count. The count is kept up to date, since a request may be cancelled at any time.
    """

    __slots__ = (
        "_candidates",
        "_ended",
        "_first",
        "_first_seconds",
        "_queued",
        "_scheduled",
        "_timeline",
        "_waited",
        "tokens",
    )

    def __init__(
        self, timeline: Timeline, request: InferenceRequest, provider: str, model: str = ""
    ) -> None:
        self._timeline = timeline
        self._candidates = 1
        self._queued = self._scheduled = self._first = 0
        self._first_seconds = 0.0
        self._waited = request.scope.waited
        self._ended = False
        self.tokens = 0
        timeline.facts |= {
            "gen_ai.operation.name": "text_completion",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": request.model_name,
            "gen_ai.response.model": model or request.model_name,
        }

    def asked(self, generation: GenerationRequest, sampling: Any) -> None:
        """Note the parameters of the request; `sampling` has them under vLLM's names."""
        facts = self._timeline.facts
        facts["gen_ai.request.stream"] = generation.stream
        if sampling.max_tokens is not None:
            facts["gen_ai.request.max_tokens"] = min(sampling.max_tokens, _LARGEST)
        for name in _SAMPLING.keys() & (generation.parameters or {}).keys():
            if (value := getattr(sampling, name)) is not None:
                facts[_SAMPLING[name]] = float(value)
        if sampling.n > 1:
            self._candidates = sampling.n
            facts["gen_ai.request.choice.count"] = sampling.n

    def prompt(self, tokens: int, cached: int | None = None) -> None:
        """Note the length of the prompt, and how much of it came from the engine's prefix cache."""
        facts = self._timeline.facts
        facts[INPUT_TOKENS] = tokens
        if cached is not None:
            facts[CACHED_TOKENS] = cached

    def queued(self, at: int = 0) -> None:
        """Note that the engine has the request."""
        self._queued = at or time.monotonic_ns()
        self._timeline.mark(ENGINE_QUEUED, self._queued)

    def scheduled(self, at: int = 0) -> None:
        """Note that the engine begins with the prompt; of several candidates, with the first."""
        if not self._scheduled:
            self._scheduled = at or time.monotonic_ns()
            self._timeline.mark(PREFILL_START, self._scheduled)

    def produced(self, tokens: int, at: int = 0) -> None:
        """Note the number of tokens so far, of all candidates; `at` is the time of the first."""
        if tokens and not self._first:
            self._first = at or time.monotonic_ns()
            self._timeline.mark(FIRST_TOKEN, self._first)
        self.tokens = tokens
        self._timeline.facts[OUTPUT_TOKENS] = tokens

    def first_after(self, seconds: float) -> None:
        """Note the time to the first token, where the engine has its own way to count it."""
        self._first_seconds = seconds

    def preempted(self, times: int) -> None:
        """Note how often the engine has taken the request's place away."""
        self._timeline.facts[PREEMPTIONS] = times

    def wasted(self, tokens: int) -> None:
        """Note what was generated after the client had left."""
        self._timeline.facts[WASTED_TOKENS] = tokens

    def ended(self, candidates: Iterable[Candidate], at: int = 0) -> None:
        """Note the end, with the reasons of the candidates that are finished; only once."""
        if self._ended:
            return
        self._ended = True
        end = at or time.monotonic_ns()
        facts = self._timeline.facts
        facts[OUTPUT_TOKENS] = self.tokens
        facts.setdefault(WASTED_TOKENS, 0)
        reasons = [one.finish_reason for one in candidates if one.finish_reason is not None]
        if reasons:
            facts[FINISH_REASONS] = reasons
        self._note_times(end)
        if self._queued:
            self._timeline.mark(DECODE_END, end)

    def _note_times(self, end: int) -> None:
        """Note the times of a generation that has ended at `end`, as far as it came."""
        facts = self._timeline.facts
        if self._scheduled:
            facts[QUEUE_TIME] = self._since_arrival(self._scheduled)
        if self._first:
            seconds = self._first_seconds or (self._first - self._queued) / 1e9
            facts[TIME_TO_FIRST_TOKEN] = seconds * 1e3 + self._waited / 1e6
            if (more := self.tokens - self._candidates) > 0 and end > self._first:
                facts[TOKENS_PER_SECOND] = more * 1e9 / (end - self._first)
                facts[TIME_PER_TOKEN] = (end - self._first) * self._candidates / more / 1e6
        if self._queued:
            facts[TOTAL_TIME] = self._since_arrival(end)

    def _since_arrival(self, at: int) -> float:
        """Milliseconds from the arrival of the request to `at`."""
        return (at - self._queued + self._waited) / 1e6


def record_of(request: InferenceRequest, provider: str, model: str = "") -> GenerationRecord | None:
    """The record of a request that is traced; see `GenerationRecord`."""
    timeline = request.scope.timeline
    return None if timeline is None else GenerationRecord(timeline, request, provider, model)
