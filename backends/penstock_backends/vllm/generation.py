"""`VllmGeneration`: one request for text, from its prompt to the last response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.backend import ResponseStream, as_inference_error
from penstock_backends.language_model import Answer, Delivery, StreamInterval, UsageReporter
from penstock_backends.vllm.adapters import Adapter
from penstock_backends.vllm.engine import VllmEngine
from penstock_backends.vllm.inputs.ending_json import with_ending_json
from penstock_backends.vllm.inputs.request_options import RequestOptions
from penstock_backends.vllm.internals import PushedRequest, ReadRequest
from penstock_backends.vllm.outputs import OutputReader
from penstock_backends.vllm.request_record import RequestRecord

Prompt = Callable[[], Awaitable[Any]]
"""Makes the prompt, for which media may have to be fetched."""


class VllmGeneration:
    """Gives vLLM a request in a task, which then ends; outputs are delivered as vLLM makes them.

    `record` is that of a traced request, `usage` of one whose tokens are reported.
    """

    def __init__(
        self,
        engine: VllmEngine,
        answer: Answer,
        reader: OutputReader,
        *,
        merge: bool,
        interval: StreamInterval,
        record: RequestRecord | None = None,
        usage: UsageReporter | None = None,
    ) -> None:
        self._engine = engine
        self._answer = answer
        self._reader = reader
        self._record = record
        self._usage = usage
        self._delivery = Delivery(answer, self._left, merge=merge, interval=interval)
        self._request: PushedRequest | ReadRequest | None = None
        self._task: asyncio.Task[None] | None = None
        self._begun = self._adding = self._over = False
        self._release: Callable[[], None] = _nothing

    @property
    def stream(self) -> ResponseStream:
        """The responses."""
        return self._delivery.stream

    def start(
        self, prompt: Prompt, sampling: Any, adapter: Adapter | None, options: RequestOptions
    ) -> None:
        """Prepare the request and give it to vLLM."""
        work = self._start(prompt, sampling, adapter, options)
        self._task = asyncio.get_running_loop().create_task(work)

    async def _start(
        self, prompt: Prompt, sampling: Any, adapter: Adapter | None, options: RequestOptions
    ) -> None:
        engine = self._engine
        try:
            given = await prompt()
            sampling = await with_ending_json(sampling, engine.facts)
            engine.begin()
            self._begun = True
            lora = await engine.acquire(adapter)
            self._release = lambda: engine.release(adapter, lora)
            rendered = await engine.rendered(given)
            self._adding = True
            added = engine.add(rendered, sampling, lora, options, self._record, self._put)
            self._request = await added
        except asyncio.CancelledError:
            self._end()
            raise
        except Exception as error:  # vLLM's own, of any kind
            self._fail(error)
        if self._over and self._request is not None and not self._answer.finished:
            self._request.abort()  # the client has left meanwhile

    def _put(self, output: Any) -> None:
        """Deliver one output of vLLM, or the error that ends the request."""
        try:
            if self._over:
                self._count_late(output)
                return
            if isinstance(output, Exception):
                raise output
            self._deliver(output)
        except Exception as error:  # vLLM's own, or of a parser of reasoning
            aborted = self._over or isinstance(output, Exception)
            if self._request is not None and not aborted:
                self._request.abort()
            self._fail(error)

    def _count_late(self, output: Any) -> None:
        """Report what the engine has made before it heard that the reader has left.

        What vLLM puts for the abort itself has no tokens, also where it never began.
        """
        if self._usage is None or isinstance(output, Exception):
            return
        if any(one.token_ids for one in output.outputs):
            _report(self._usage, self._answer, output)
            self._usage.cut_off()

    def _deliver(self, output: Any) -> None:
        answer, record = self._answer, self._record
        self._reader.add(output)
        if self._usage is not None:
            _report(self._usage, answer, output)
        if record is not None:
            record.add(output)
            if answer.finished:
                record.ended(answer.candidates, finished=True)
        if answer.finished:
            self._end()
        self._delivery.push()

    def _left(self) -> None:
        """The reader has left: have vLLM stop."""
        if self._over:
            return
        self._engine.statistics.cancelled += self._begun
        self._end()
        if self._request is not None:
            self._request.abort()
        elif self._task is not None and not self._adding:
            self._task.cancel()

    def _fail(self, error: Exception) -> None:
        if self._over:
            return
        why = self._engine.failure(error) if self._begun else as_inference_error(error)
        self._end()
        self.stream.fail(why)

    def _end(self) -> None:
        """Let go of what the request holds; nothing is delivered any more."""
        self._over = True
        release, self._release = self._release, _nothing
        release()
        if self._usage is not None:
            self._usage.cut_off()
        if self._record is not None:
            self._record.ended(self._answer.candidates, finished=False)


def _nothing() -> None:
    """Nothing is held yet."""


def _report(usage: UsageReporter, answer: Answer, output: Any) -> None:
    """Report the tokens of a request with those of one `RequestOutput`."""
    # One that comes late was not read into the answer.
    usage.prompt = answer.prompt_tokens or len(output.prompt_token_ids or ())
    usage.cached = output.num_cached_tokens or 0
    usage.add(sum(len(one.token_ids) for one in output.outputs), finished=output.finished)
