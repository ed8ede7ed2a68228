"""`RequestRecord`: vLLM's own times and counts of one request, noted in its timeline."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, ClassVar

from penstock.backend import Timeline
from penstock_backends.language_model import Candidate, GenerationRecord


class RequestRecord:
    """Notes the statistics of vLLM's outputs, which are those behind its metrics.

    They are one object for each sequence, which vLLM keeps up to date while the request runs; so of
    a request that is cancelled, what was made since the last output is known too. Requests of
    several candidates are counted by their outputs.
    """

    INTERVAL: ClassVar[int] = 1 << 30
    """Tokens between the outputs for an answer in one piece: the first, and all others."""

    def __init__(self, timeline: Timeline, generation: GenerationRecord) -> None:
        self.timeline = timeline
        self._generation = generation
        self._submitted = 0
        self._received = 0
        self._single = False
        self._statistics: Any = None

    def prepare(self, sampling: Any, *, stream: bool) -> None:
        """Have vLLM report the first token of an answer in one piece, and then the whole."""
        self._single = sampling.n == 1
        if self._single and not stream and hasattr(sampling, "stream_interval"):
            sampling.stream_interval = self.INTERVAL

    def submitted(self) -> None:
        """Note that vLLM is given the request."""
        self._submitted = time.monotonic_ns()

    def add(self, output: Any) -> None:
        """Note one output of vLLM."""
        now = time.monotonic_ns()
        generation, statistics = self._generation, output.metrics
        if not self._received:
            self._begin(output, statistics, now)
        self._received += sum(len(completion.token_ids) for completion in output.outputs)
        first = 0 if statistics is None else self._time(statistics.first_token_ts, now)
        generation.produced(self._tokens(), first or now)

    def ended(self, candidates: Iterable[Candidate], *, finished: bool) -> None:
        """Note the end, in good time for the last response."""
        generation, statistics, now = self._generation, self._statistics, time.monotonic_ns()
        last = 0
        if statistics is not None:
            generation.preempted(statistics.num_preemptions)
            generation.first_after(statistics.first_token_latency)
            generation.produced(self._tokens())
            last = self._time(statistics.last_token_ts, now)
        elif self._submitted and not self._received:
            generation.queued(self._submitted)
        generation.ended(candidates, (finished and last) or now)

    def _begin(self, output: Any, statistics: Any, now: int) -> None:
        generation = self._generation
        self._statistics = statistics
        if output.prompt_token_ids is not None:
            generation.prompt(len(output.prompt_token_ids), output.num_cached_tokens)
        queued = 0 if statistics is None else self._time(statistics.queued_ts, now)
        generation.queued(queued or self._submitted)
        if statistics is not None and (at := self._time(statistics.scheduled_ts, now)):
            generation.scheduled(at)

    def _tokens(self) -> int:
        """Tokens so far."""
        if self._single and self._statistics is not None:
            return int(self._statistics.num_generation_tokens)
        return self._received

    def _time(self, seconds: float, now: int) -> int:
        """A time of the engine's process in nanoseconds; 0 if its clock is that of another host."""
        at = int(seconds * 1e9)
        return at if self._submitted <= at <= now else 0
