"""The engine: a loop that steps the pipeline, and the queue of waiting sequences."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from penstock.backend import InferenceError, InternalError, RejectedError, UnavailableError
from penstock_backends.language_model import ENGINE_REQUESTS, Delivery, EngineStatistics
from penstock_backends.openvino_genai.pipeline import Pipeline, StepOutput, reason
from penstock_backends.openvino_genai.sequence import TokenSequence

logger = logging.getLogger(__name__)

_YIELDS = 2
"""Iterations of the event loop between two steps. In the first, responses of the last step are
written and incoming messages read; in the second, the requests that arrived are started."""


class GenAiEngine:
    """Runs sequences in flight, with in-flight batching, on the event loop.

    `step` holds the GIL and the engine's process has no other work, so there is no thread. At most
    `max_running` sequences are in the pipeline; the others wait in a queue of at most
    `max_waiting`, where cancelling costs nothing.
    """

    def __init__(self, pipeline: Pipeline, *, max_running: int, max_waiting: int) -> None:
        self._pipeline = pipeline
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._waiting: dict[TokenSequence, None] = {}
        self._running: dict[TokenSequence, None] = {}
        self._scheduled = False
        self.failure: str | None = None
        self.statistics = EngineStatistics()
        self._steps = 0

    def submit(self, sequences: Sequence[TokenSequence]) -> None:
        """Queue the sequences of one request, which keep their place until they are `prepared`.

        Raises `RejectedError` if the queue is full, `UnavailableError` if the engine has failed.
        """
        if self.failure is not None:
            raise UnavailableError(self.failure)
        room = self._max_running - len(self._running) + self._max_waiting - len(self._waiting)
        if len(sequences) > room:
            self.statistics.reject(ENGINE_REQUESTS)
            raise RejectedError(f"the engine's queue is full: {len(self._waiting)} are waiting")
        self._waiting.update(dict.fromkeys(sequences))
        if (times := sequences[0].delivery.times) is not None:
            times.queued()
        if sequences[0].ready:
            self.prepared()

    def prepared(self) -> None:
        """Note that one more of the queued requests has its prompt."""
        self.statistics.requests += 1
        self._schedule()

    def withdraw(self, sequences: Iterable[TokenSequence]) -> None:
        """Take a request back that was never prepared."""
        self._remove(sequences)

    def cancel(self, sequences: Sequence[TokenSequence]) -> None:
        """Cancel the sequences of a request whose client has left."""
        self.statistics.cancelled += sequences[0].ready
        self._remove(sequences)
        self._schedule()

    def close(self) -> None:
        """Fail the requests in flight, and release their KV cache."""
        broken = self.failure is not None
        self._fail_all(self.failure or "the model is being unloaded")
        if self._pipeline.busy and not broken:
            self._pipeline.step()

    def metrics(self) -> Mapping[str, float]:
        """Gauges and counters by metric name."""
        statistics = self.statistics
        statistics.running, statistics.waiting = len(self._running), len(self._waiting)
        # An idle pipeline keeps reporting the cache usage of its last step.
        live = bool(self._running) or self._pipeline.busy
        statistics.cache_usage = self._pipeline.cache_usage if live else 0.0
        return {
            **statistics.metrics(),
            "penstock_llm_engine_steps_total": self._steps,
            "penstock_llm_max_running_requests": self._max_running,
        }

    # -- the loop ---------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled and self.failure is None:
            self._scheduled = True
            self._yield(_YIELDS)

    def _yield(self, times: int) -> None:
        loop = asyncio.get_running_loop()
        if times:
            loop.call_soon(self._yield, times - 1)
        else:
            loop.call_soon(self._run_step)

    def _run_step(self) -> None:
        self._scheduled = False
        if self.failure is not None:
            return
        try:
            self._admit()
            if self._running or self._pipeline.busy:  # `busy` last: it is slow
                self._pipeline.step()
                self._steps += 1
                self._collect()
        except Exception as error:  # the engine's own, of any kind; it does not recover
            self._break(error)
        if self._running or self._next() is not None or self._pipeline.busy:
            self._schedule()

    def _next(self) -> TokenSequence | None:
        """The first that waits and is ready."""
        for sequence in self._waiting:
            if sequence.ready:
                return sequence
        return None

    def _admit(self) -> None:
        while len(self._running) < self._max_running and (sequence := self._next()) is not None:
            del self._waiting[sequence]
            try:
                sequence.handle = self._pipeline.add(
                    sequence.prompt, sequence.sampling, logprobs=sequence.logprobs
                )
            except Exception as error:  # parameters that our own checks let through
                logger.exception("the engine refused a request")
                self._fail(sequence.delivery, InternalError(reason(error)))
                continue
            self._running[sequence] = None
            self.statistics.prefill_tokens += len(sequence.prompt)
            if (times := sequence.delivery.times) is not None:
                times.scheduled()

    def _collect(self) -> None:
        """Deliver the step's outputs: one response per request for all its candidates."""
        touched: dict[Delivery, int] = {}
        for sequence in tuple(self._running):
            output = sequence.handle.read() if sequence.handle is not None else None
            if output is not None and sequence in self._running:
                tokens = self._accept_output(sequence, output)
                touched[sequence.delivery] = touched.get(sequence.delivery, 0) + tokens
        for delivery, tokens in touched.items():
            if delivery.times is not None:
                delivery.times.output(tokens, finished=delivery.answer.finished)
            delivery.push()

    def _accept_output(self, sequence: TokenSequence, output: StepOutput) -> int:
        """Take a step's output of one sequence; returns its tokens, 0 if the request failed."""
        if output.lost:
            self._fail(sequence.delivery, UnavailableError("the engine ran out of KV cache"))
            return 0
        try:
            tokens = sequence.accept(output)
        except Exception as error:  # a tokenizer that cannot decode the model's tokens
            logger.exception("cannot decode the engine's tokens")
            self._fail(sequence.delivery, InternalError(reason(error)))
            return 0
        self.statistics.generation_tokens += tokens
        if sequence.finished:
            del self._running[sequence]
            if output.finish_reason is None and sequence.handle is not None:
                sequence.handle.cancel()  # ended by a stop string, which the engine does not see
            sequence.handle = None
        return tokens

    # -- cancellation and failure -----------------------------------------------------------

    def _remove(self, sequences: Iterable[TokenSequence]) -> None:
        for sequence in sequences:
            self._waiting.pop(sequence, None)
            if sequence in self._running:
                del self._running[sequence]
                if sequence.handle is not None:
                    sequence.handle.cancel()
                sequence.handle = None

    def _live(self) -> list[TokenSequence]:
        return [*self._running, *self._waiting]

    def _fail(self, delivery: Delivery, error: InferenceError) -> None:
        """Fail a request, and drop all its sequences."""
        self.statistics.failed += 1
        self._remove(sequence for sequence in self._live() if sequence.delivery is delivery)
        delivery.fail(error)

    def _fail_all(self, why: str) -> None:
        """Fail every request; later ones are rejected."""
        self.failure = why
        live = self._live()
        self._remove(live)
        for delivery, begun in {one.delivery: one.ready for one in live}.items():
            self.statistics.failed += begun
            delivery.fail(UnavailableError(why))

    def _break(self, error: Exception) -> None:
        logger.error("the engine failed in a step", exc_info=error)
        self._fail_all(f"the engine failed: {reason(error)}")
