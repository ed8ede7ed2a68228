"""`Generation`: one request in the engine, and the responses that its reader keeps up with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.backend import (
    InferenceError,
    InferenceResponse,
    InternalError,
    RequestCancelledError,
)
from penstock_backends.language_model import (
    Candidate,
    EngineStatistics,
    GenerationRecord,
    GenerationTimes,
    PacedSender,
    StreamInterval,
    UsageReporter,
)
from penstock_backends.tensorrt_llm.engine import PREFIX, TensorRtLlmEngine

CANCELLED = "Request cancelled by client"

Submit = Callable[[], Awaitable[Any]]
"""Prepares the prompt and gives it to the engine; its `RequestOutput`."""


class Generation(PacedSender):
    """Reads the engine's output as it comes, and sends what the reader has room for.

    `respond` encodes the output as it is: with the whole text so far, so a reader that falls
    behind misses nothing where outputs are left out. Without `merge` there is a response for each.
    `by_token`: whether the engine reports each step, and not the end alone.
    The engine aborts the request as soon as its reader leaves.
    """

    def __init__(
        self,
        engine: TensorRtLlmEngine,
        respond: Callable[[Any], InferenceResponse],
        *,
        streaming: bool,
        by_token: bool = True,
        merge: bool = True,
        record: GenerationRecord | None = None,
        usage: UsageReporter | None = None,
        trace_id: str = "",
        tenant: str = "",
        waited: int = 0,
        interval: StreamInterval | None = None,
    ) -> None:
        super().__init__(merge=merge, interval=interval)
        self._engine = engine
        self._respond = respond
        self._streaming = streaming
        self._by_token = by_token
        self._record = record
        self._usage = usage
        self._trace_id = trace_id
        self._tenant = tenant
        self._waited = waited
        self._output: Any = None
        self._task: asyncio.Task[None] | None = None
        self._times: GenerationTimes | None = None
        self._tokens = 0
        self._aborted = False
        self._cached_noted = False

    def start(self, submit: Submit) -> asyncio.Task[None]:
        """Submit the request and read its output, in a task that the caller keeps."""
        self._task = asyncio.create_task(self._run(submit))
        return self._task

    def stop(self) -> None:
        """End it as another request of the client's asks (TL-06)."""
        if not self.stream.ended:
            self._abort()
            self._fail(RequestCancelledError(CANCELLED))

    async def _run(self, submit: Submit) -> None:
        statistics = self._engine.statistics
        statistics.requests += 1
        statistics.open += 1
        try:
            self._output = await submit()
            self._begin(statistics)
            if self._aborted:
                self._output.abort()
            async for output in self._output:
                self._update(output)
            if not self.stream.ended:
                self._fail(
                    InternalError(PREFIX + "the engine ended the request without a last output")
                )
        except asyncio.CancelledError:
            self._fail(RequestCancelledError(CANCELLED))
            raise
        except Exception as error:  # the engine's, of any kind
            if not self._aborted:
                statistics.failed += 1
            self._fail(self._engine.translated(error))
        finally:
            statistics.open -= 1

    def _begin(self, statistics: EngineStatistics) -> None:
        prompt = len(self._output.prompt_token_ids or ())
        statistics.prefill_tokens += prompt
        if self._record is not None:
            self._record.prompt(prompt)
        if self._usage is not None:
            self._usage.prompt = prompt
        self._times = GenerationTimes(
            statistics,
            prompt,
            self._trace_id,
            record=self._record,
            usage=self._usage,
            candidates=max(len(self._output.outputs), 1),
            tenant=self._tenant,
            waited=self._waited,
        )
        self._times.queued()

    def _update(self, output: Any) -> None:
        self._output = output
        if not self._cached_noted:
            self._note_cached(output)
        tokens = sum(len(one.token_ids or ()) for one in output.outputs)
        new, self._tokens = tokens - self._tokens, tokens
        self._engine.statistics.generation_tokens += new
        self._observe(new, finished=output.finished)
        if self.stream.ended:
            return
        if output.finished and any(one.finish_reason == "cancelled" for one in output.outputs):
            self._fail(RequestCancelledError(CANCELLED))
        elif output.finished or (self._streaming and new):
            self.push()

    def _note_cached(self, output: Any) -> None:
        """Note the prompt's tokens from the engine's cache, which later releases report."""
        self._cached_noted = True
        cached = getattr(output, "cached_tokens", None)
        if cached is None:
            return
        statistics = self._engine.statistics
        statistics.cached_tokens = (statistics.cached_tokens or 0) + cached
        if self._record is not None:
            self._record.prompt(len(output.prompt_token_ids or ()), cached)
        if self._usage is not None:
            self._usage.cached = cached

    def _observe(self, new: int, *, finished: bool) -> None:
        times = self._times
        assert times is not None
        if self._aborted:
            if self._by_token:  # otherwise what was made before it is among them
                self._engine.statistics.wasted_tokens += new
            return
        if not self._by_token:  # the time of the first token is not known
            times.tokens += new
            new = 0
        times.output(new, finished=finished)

    def push(self) -> None:
        """Send the output as it is, the last one at once."""
        if self.stream.ended:
            return
        if self._output.finished:
            self._end_record()
        elif not self._may_leave():
            return
        self.stream.send(self._respond(self._output))

    def _fail(self, error: InferenceError) -> None:
        if self._times is not None:
            self._times.cut_off()
        self._end_record()
        self.stream.fail(error)

    def _closed(self) -> None:
        self._engine.statistics.cancelled += 1
        self._abort()
        if self._times is not None:
            self._times.left(self.stream.left_at)
        self._end_record()

    def _abort(self) -> None:
        """Abort the request; one that the engine does not have yet is not given to it."""
        self._aborted = True
        if self._output is not None:
            self._output.abort()
        elif self._task is not None:
            self._task.cancel()

    def _end_record(self) -> None:
        if self._record is None:
            return
        completions = [] if self._output is None else self._output.outputs
        candidates = [Candidate() for _ in completions]
        for candidate, completion in zip(candidates, completions, strict=True):
            candidate.finish_reason = completion.finish_reason
        self._record.ended(candidates, 0 if self._times is None else self._times.latest)
