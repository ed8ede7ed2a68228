"""A scripted engine in place of `AsyncLLM`, and the backend over it."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock_backends.language_model import StreamInterval
from penstock_backends.vllm import VllmBackend, backend
from penstock_backends.vllm.arguments.engine_args import EngineArguments
from penstock_backends.vllm.engine import VllmEngine
from penstock_backends.vllm.engine_calls import EngineCalls
from penstock_backends.vllm.internals import Inside, Touch
from penstock_backends.vllm.model_facts import ModelFacts
from penstock_backends.vllm.statistics import VllmStatistics

TURNS = 4
"""Iterations of the event loop between two steps: enough for a reader to take what came."""


class Collector:
    """vLLM's own, as far as it is used: it keeps what nobody has been put in place for."""

    def __init__(self, number: str) -> None:
        self.request_id = number
        self._kept: Any = None

    def put(self, output: Any) -> None:
        self._kept = output

    def get_nowait(self) -> Any:
        kept, self._kept = self._kept, None
        if isinstance(kept, Exception):
            raise kept
        return kept


class ScriptedLlm:
    """`AsyncLLM` with a made-up model: a token `x` at each step, without end if `endless`.

    As the real one, it keeps one object of statistics for each request up to date; without `stats`
    it has none. Its clock is `ahead` of ours. `early` is put before `add_request` returns; without
    `steps` nothing else is. `render` and `admit` are waited for before a prompt is rendered, and
    before a request is added.
    """

    def __init__(self, *, endless: bool = False, stats: bool = True, ahead: float = 0.0) -> None:
        self.ahead = ahead
        self.errored = False
        self.renderer = self
        self.endless = endless
        self.stats = stats
        self.steps = True
        self.early: Any = None
        self.given: dict[str, Any] = {}
        self.latest: Any = None
        self.collectors: list[Collector] = []
        self.aborted: list[str] = []
        self.render, self.admit = asyncio.Event(), asyncio.Event()
        self.render.set()
        self.admit.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def render_cmpl_async(self, prompts: list[Any]) -> list[Any]:
        await self.render.wait()
        return prompts

    async def add_request(self, number: str, prompt: Any, sampling: Any, **given: Any) -> Collector:
        self.given = given
        collector = Collector(number)
        self.collectors.append(collector)
        if self.early is not None:
            collector.put(self.early)
        await self.admit.wait()
        if self.steps:
            task = asyncio.create_task(self._run(collector, sampling))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return collector

    async def abort(self, number: str, internal: bool = False) -> None:
        assert internal
        self.aborted.append(number)

    async def _run(self, collector: Collector, sampling: Any) -> None:
        stats = self.latest = self._statistics()
        interval = getattr(sampling, "stream_interval", None) or 1
        unsent = 0
        for step in itertools.count(1) if self.endless else range(1, sampling.max_tokens + 1):
            for _ in range(TURNS):
                await asyncio.sleep(0)
            if collector.request_id in self.aborted:
                return
            stats.num_generation_tokens, stats.last_token_ts = step, self._now()
            unsent += 1
            finished = step == sampling.max_tokens and not self.endless
            if finished or step == 1 or unsent >= interval:
                collector.put(self.output(unsent, stats, finished=finished))
                unsent = 0

    def _now(self) -> float:
        return time.monotonic() + self.ahead

    def _statistics(self) -> Any:
        return SimpleNamespace(
            queued_ts=self._now(),
            scheduled_ts=self._now(),
            first_token_ts=self._now(),
            last_token_ts=0.0,
            first_token_latency=0.25,
            num_generation_tokens=0,
            num_preemptions=2,
        )

    def output(self, tokens: int, stats: Any = None, *, finished: bool = False) -> Any:
        """One `RequestOutput`."""
        completion = SimpleNamespace(
            index=0,
            text="x" * tokens,
            token_ids=[7] * tokens,
            logprobs=None,
            cumulative_logprob=None,
            finish_reason="length" if finished else None,
            stop_reason=None,
        )
        return SimpleNamespace(
            prompt_token_ids=[1, 2, 3],
            prompt_logprobs=None,
            num_cached_tokens=2,
            kv_transfer_params=None,
            outputs=[completion],
            finished=finished,
            metrics=stats if self.stats else None,
        )


def vllm(
    monkeypatch: pytest.MonkeyPatch, llm: ScriptedLlm, *, spans: bool = False, lacks: str = ""
) -> VllmBackend:
    """The backend over the scripted engine; its `SamplingParams` are plain.

    The engine `lacks` a name of one of the touches of its inside.
    """

    def read_sampling(given: Any, *, stream: bool, logprobs: bool) -> tuple[Any, str | None]:
        known = {"max_tokens": 16, "temperature": 1.0, "top_p": 1.0, "n": 1, **given}
        return SimpleNamespace(**known, stream=stream, stream_interval=None), None

    monkeypatch.setattr(backend, "read_sampling", read_sampling)
    made, engine = VllmBackend(), VllmEngine.__new__(VllmEngine)
    engine.statistics = VllmStatistics()
    engine._numbers = itertools.count(1)
    engine.inside = Inside({lacks: Touch(("vllm_of_old:Name",), "it is slower")} if lacks else {})
    engine._llm = llm
    engine._makes_spans = spans
    engine.logprobs = True
    engine.facts = ModelFacts()
    engine.tasks = frozenset({"generate"})
    engine.calls = EngineCalls(llm, EngineArguments({}, Path("model.json")))
    engine.adapters = None
    made._engine, made._model = engine, "tiny"
    made._interval = StreamInterval()
    return made
