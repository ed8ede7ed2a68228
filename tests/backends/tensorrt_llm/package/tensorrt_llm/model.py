"""The made-up model: `w0 w1 w2 ...`, and what a prompt asks it to do instead.

`@endless` has no last token, `@refuse` is refused, `@fail` fails, `@die` ends the engine, `@cancel`
is cancelled by the engine, `@silent` ends without a last output, `@late` is `@endless` and has two
more tokens after it was aborted. `STEP` seconds are a step.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from .executor import CppExecutorError, RequestError
from .facts import checked, release
from .params import SamplingParams

STEP = 0.001
BLOCKS = 100


def words(count: int) -> str:
    """The text of so many tokens."""
    return "".join(f" w{number}" for number in range(count))


class RequestOutput:
    """One request: iterating brings itself, once for each step or at the end."""

    def __init__(self, llm: LLM, number: int, prompt: Any, sampling: Any, streaming: bool) -> None:
        self._llm, self._sampling, self._streaming = llm, sampling, streaming
        self._aborted = False
        self._late = 2
        self.request_id, self.finished = number, False
        given = prompt if isinstance(prompt, dict) else {"prompt": prompt}
        given = {"prompt_token_ids": prompt} if isinstance(prompt, list) else given
        self.prompt = given.get("prompt")
        self.images = (given.get("multi_modal_data") or {}).get("image", [])
        self.prompt_token_ids = given.get("prompt_token_ids") or list(
            range(len(str(self.prompt).split()))
        )
        if release() != "1.2":
            self.cached_tokens = len(self.prompt_token_ids) - 1
        self.outputs = [completion(index) for index in range(sampling.n)]
        self.context_logits = [[0.5, 0.25]] if sampling.return_context_logits else None

    def __aiter__(self) -> AsyncIterator[RequestOutput]:
        return self._steps()

    @property
    def _asks(self) -> str:
        return str(self.prompt).partition("@")[2].partition(" ")[0]

    @checked("RequestOutput")
    def abort(self) -> None:
        """From any task of the loop; the last output says so."""
        self._aborted = True

    def aborted(self) -> bool:
        return self._aborted

    async def _steps(self) -> AsyncIterator[RequestOutput]:
        self._llm.active += 1
        try:
            for step in itertools.count(1):
                await asyncio.sleep(STEP)
                self._step(step)
                self._llm.report()
                if self.finished and self._asks == "silent":
                    return
                if self.finished or self._streaming:
                    yield self
                if self.finished:
                    return
        finally:
            self._llm.active -= 1
            self._llm.report()

    def _step(self, step: int) -> None:
        if self._aborted and self._asks == "late" and self._late:
            self._late -= 1
        elif self._aborted or self._asks == "cancel":
            self._finish("cancelled")
            return
        if not self._llm.alive or (self._asks == "die" and step == 3):
            self._llm.alive = False
            raise CppExecutorError("the executor has ended")
        if self._asks == "fail" and step == 3:
            raise OSError("a kernel failed")
        self._add(step)
        if (stopped := self._stopped()) is not None:
            self._finish("stop", stopped)
        elif step >= self._sampling.max_tokens and self._asks not in ("endless", "late"):
            self._finish("length")

    def _add(self, step: int) -> None:
        for one in self.outputs:
            one.token_ids.append(1000 + step - 1)
            one.token_ids_diff = one.token_ids[-1:]
            if self._sampling.detokenize:
                one.text_diff, one.text = f" w{step - 1}", words(step)
            if self._sampling.logprobs is not None:
                one.cumulative_logprob = -0.5 * step
                one.logprobs.append({1000 + step - 1: SimpleNamespace(logprob=-0.5)})

    def _stopped(self) -> str | int | None:
        stops = self._sampling.stop or []
        ids = self.outputs[0].token_ids
        text = words(len(ids))
        found = [stop for stop in ([stops] if isinstance(stops, str) else stops) if stop in text]
        ids_found = [one for one in self._sampling.stop_token_ids or [] if one in ids]
        for one in self.outputs:
            if found:
                one.text = one.text[: text.index(found[0])]
        return found[0] if found else ids_found[0] if ids_found else None

    def _finish(self, reason: str, stopped: str | int | None = None) -> None:
        self.finished = True
        for one in self.outputs:
            one.finish_reason, one.stop_reason = reason, stopped
            if self._sampling.return_perf_metrics:
                one.request_perf_metrics = perf_metrics()


def completion(index: int) -> Any:
    return SimpleNamespace(
        index=index,
        text="",
        token_ids=[],
        text_diff="",
        token_ids_diff=[],
        logprobs=[],
        cumulative_logprob=None,
        finish_reason=None,
        stop_reason=None,
        generation_logits=None,
        request_perf_metrics=None,
    )


def perf_metrics() -> Any:
    return SimpleNamespace(
        kv_cache_metrics=SimpleNamespace(
            num_reused_blocks=3,
            num_missed_blocks=1,
            num_new_allocated_blocks=2,
            num_total_allocated_blocks=5,
            kv_cache_hit_rate=0.75,
        ),
        timing_metrics=SimpleNamespace(
            arrival_time=timedelta(days=30, microseconds=1),
            first_scheduled_time=timedelta(days=30, microseconds=2),
            first_token_time=timedelta(days=30, microseconds=3),
            last_token_time=timedelta(days=30, microseconds=4),
        ),
        speculative_decoding=SimpleNamespace(
            acceptance_rate=0.5, total_accepted_draft_tokens=7, total_draft_tokens=14
        ),
    )


class Tokenizer:
    """Of the made-up model: token 1000 is ` w0`."""

    def decode(self, ids: list[int]) -> str:
        return "".join(f" w{one - 1000}" for one in ids)


class LLM:
    """The engine: no GPU, no threads, one step of each request at a time."""

    @checked("LLM")
    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        if "broken" in str(arguments["model"]):
            raise RuntimeError("CUDA out of memory")
        self.alive, self.active = True, 0
        self.tokenizer = None if arguments["skip_tokenizer_init"] else Tokenizer()
        self.requests: list[RequestOutput] = []
        self._steps = itertools.count(1)
        self._reports: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    @checked("LLM")
    def generate_async(
        self, *, inputs: Any, sampling_params: Any, streaming: bool, **more: Any
    ) -> RequestOutput:
        sampling = sampling_params or SamplingParams()
        output = RequestOutput(self, len(self.requests), inputs, sampling, streaming)
        if "@refuse" in str(output.prompt):
            raise RequestError("the prompt is longer than max_seq_len")
        self.lora_request = more["lora_request"]
        self.sampling = sampling
        self.requests.append(output)
        return output

    @checked("LLM")
    def get_stats_async(self, *, timeout: float | None) -> AsyncIterator[dict[str, Any]]:
        return self._iterate(timeout)

    @checked("LLM")
    def shutdown(self) -> None:
        self.alive = False

    def _check_health(self) -> bool:
        return self.alive

    async def _iterate(self, seconds: float | None) -> AsyncIterator[dict[str, Any]]:
        while True:
            try:
                yield await asyncio.wait_for(self._reports.get(), seconds)
            except TimeoutError:
                return

    def report(self) -> None:
        """The statistics of a step, where they were asked for."""
        if not self.arguments["enable_iter_perf_stats"]:
            return
        self._reports.put_nowait(
            {
                "iter": next(self._steps),
                "numActiveRequests": self.active,
                "numQueuedRequests": 1 if self.active > 2 else 0,
                "maxNumActiveRequests": 64,
                "cpuMemUsage": 10,
                "gpuMemUsage": 20,
                "pinnedMemUsage": 30,
                "kvCacheStats": {
                    "maxNumBlocks": BLOCKS,
                    "freeNumBlocks": BLOCKS - self.active,
                    "usedNumBlocks": self.active,
                    "tokensPerBlock": 32,
                    "reusedBlocks": 4,
                },
                "specDecodingStats": {"numDraftTokens": 3, "numAcceptedTokens": 2},
                "inflightBatchingStats": {
                    "numScheduledRequests": self.active,
                    "numContextRequests": 0,
                    "numGenRequests": self.active,
                    "numPausedRequests": 0,
                    "numCtxTokens": 0,
                    "microBatchId": 0,
                },
            }
        )
