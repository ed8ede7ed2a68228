"""Adapter of vLLM's `AsyncLLM`: start, generation, health and shutdown."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, nullcontext
from functools import partial
from typing import Any

from penstock.backend import (
    BackendNotInstalledError,
    InferenceError,
    ModelLoadError,
    UnavailableError,
)
from penstock_backends.vllm.adapters import Adapter, Adapters
from penstock_backends.vllm.arguments.engine_args import (
    NOT_INSTALLED,
    EngineArguments,
    advice,
)
from penstock_backends.vllm.arguments.engine_keywords import engine_keywords
from penstock_backends.vllm.children import descendants, kill_leftovers
from penstock_backends.vllm.engine_calls import EngineCalls
from penstock_backends.vllm.failures import UNHEALTHY, rejection_reason, translated
from penstock_backends.vllm.inputs.request_options import NO_OPTIONS, RequestOptions
from penstock_backends.vllm.internals import (
    Inside,
    PushedRequest,
    Put,
    ReadRequest,
    noted_failure,
    render,
    uncollected,
    watch_outputs,
)
from penstock_backends.vllm.kv_events import KvEventsProof
from penstock_backends.vllm.model_facts import read_facts
from penstock_backends.vllm.own_spans import add_endpoint, trace_headers
from penstock_backends.vllm.request_record import RequestRecord
from penstock_backends.vllm.statistics import VllmStatistics, logger_factory

logger = logging.getLogger(__name__)

_POOLING = ("embed", "classify")
_GRACE = 1.0  # seconds for the engine's processes to exit


class VllmEngine:
    """One `AsyncLLM` and the processes that it has started."""

    def __init__(self, arguments: EngineArguments) -> None:
        """Start the engine, which takes seconds to minutes. Blocks; raises `ModelLoadError`."""
        self.statistics = VllmStatistics()
        self.tasks: frozenset[str] = frozenset()
        self._numbers = itertools.count(1)
        self._makes_spans = add_endpoint(arguments)
        before = descendants(os.getpid())
        try:
            self.inside, self._llm = _start(arguments, self.statistics)
        except ModelLoadError:
            kill_leftovers(descendants(os.getpid()) - before)
            raise
        if self.inside.has("outputs"):
            watch_outputs(self._llm, self.statistics)
        self._children = descendants(os.getpid()) - before
        self.calls = EngineCalls(self._llm, arguments)
        self.adapters: Adapters | None = None
        self.kv_events = KvEventsProof({})
        self.on_cpu = _on_cpu()
        self.logprobs = not self.on_cpu or _has_compiler()
        self.facts = read_facts(self._llm, self.inside)

    async def warm_up(self) -> None:
        """Ask for one token, so that no client waits for kernels that are compiled lazily.

        On a CPU, those of log probabilities take 20 seconds if a compiler is installed. A pooling
        model is asked for the task that it has.
        """
        from vllm.pooling_params import PoolingParams
        from vllm.sampling_params import SamplingParams

        self.tasks = frozenset(await self._llm.get_supported_tasks())
        logprobs = 0 if self.on_cpu and self.logprobs else None
        asked: Any = SamplingParams(max_tokens=1, temperature=0.0, logprobs=logprobs)
        if not self.generates:
            asked = PoolingParams(task=self.pooling_task)  # type: ignore[arg-type, unused-ignore]
        await self._run_uncounted({"prompt": "warm"}, asked)

    @property
    def generates(self) -> bool:
        """Whether the model makes text; others pool."""
        return "generate" in self.tasks

    @property
    def pooling_task(self) -> str:
        """The task of a pooling model for a text as a whole, where it has one."""
        return next((task for task in _POOLING if task in self.tasks), min(self.tasks, default=""))

    @property
    def llm(self) -> Any:
        """vLLM's own object."""
        return self._llm

    @property
    def makes_spans(self) -> bool:
        """Whether vLLM makes spans of its own."""
        return self._makes_spans

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self._llm.get_tokenizer()

    @property
    def failed(self) -> bool:
        """Whether the engine has died; it does not recover."""
        return self._llm is None or bool(self._llm.errored)

    async def generate(
        self,
        prompt: Any,
        params: Any,
        adapter: Adapter | None,
        options: RequestOptions = NO_OPTIONS,
    ) -> AsyncGenerator[Any, None]:
        """vLLM's outputs; closing the generator aborts the request in the engine."""
        self.begin()
        finished = False
        lora = None
        try:
            lora = await self.acquire(adapter)
            rendered = await self.rendered(prompt)
            headers = self._headers(options, None)
            outputs = self._outputs(rendered, params, _named(options, lora, headers))
            async with aclosing(outputs):
                async for output in outputs:
                    finished = output.finished
                    yield output
        except Exception as error:  # vLLM's own, of any kind
            raise self.failure(error) from error
        except BaseException:  # the client has disconnected
            self.statistics.cancelled += not finished
            raise
        finally:
            self.release(adapter, lora)

    def begin(self) -> None:
        """Count a request; raises if the engine cannot take any."""
        if self.failed:
            raise UnavailableError(UNHEALTHY)
        self.calls.check_awake()
        self.statistics.requests += 1

    async def acquire(self, adapter: Adapter | None) -> Any:
        """vLLM's own form of an adapter, loaded; to be released."""
        if adapter is None:
            return None
        assert self.adapters is not None
        return await self.adapters.acquire(adapter)

    def release(self, adapter: Adapter | None, lora: Any) -> None:
        """Undo `acquire`, which returned `lora`."""
        if lora is not None and adapter is not None and self.adapters is not None:
            self.adapters.release(adapter)

    async def rendered(self, prompt: Any) -> Any:
        """The prompt in tokens; as it is where vLLM makes tokens of it later."""
        return await render(self._llm, prompt) if self.inside.has("render") else prompt

    async def add(
        self,
        rendered: Any,
        sampling: Any,
        lora: Any,
        options: RequestOptions,
        record: RequestRecord | None,
        put: Put,
    ) -> PushedRequest | ReadRequest:
        """Give vLLM a request, whose outputs, and the error that ends it, are passed to `put`.

        Must not be cancelled: vLLM might have the request then, and it could not be aborted.
        """
        headers = self._headers(options, record)
        if record is not None:
            record.submitted()
        number, named = str(next(self._numbers)), _named(options, lora, headers)
        if not self.inside.has("push"):
            return ReadRequest(self._llm.generate(rendered, sampling, number, **named), put)
        collector = await self._llm.add_request(number, rendered, sampling, **named)
        return PushedRequest(self._llm, collector, put)

    def _outputs(
        self, rendered: Any, params: Any, named: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """vLLM's outputs for sampling or pooling parameters."""
        number = str(next(self._numbers))
        if hasattr(params, "max_tokens"):
            return self._llm.generate(rendered, params, number, **named)  # type: ignore[no-any-return]
        del named["session_id"], named["data_parallel_rank"]  # which pooling does not have
        return self._llm.encode(rendered, params, number, **named)  # type: ignore[no-any-return]

    def failure(self, error: Exception) -> InferenceError:
        """The error of a request that has begun, which is counted, in the server's words."""
        self._count(error)
        return translated(error)

    def _headers(
        self, options: RequestOptions, record: RequestRecord | None
    ) -> Mapping[str, str] | None:
        """The span that vLLM's own are children of, if it makes any."""
        if not self._makes_spans:
            return None
        return options.trace if record is None else trace_headers(record.timeline)

    def _count(self, error: Exception) -> None:
        if why := rejection_reason(error):
            self.statistics.reject(why)
        else:
            self.statistics.failed += 1

    async def prove_kv_events(self) -> None:
        """Find out whether its publishers of KV events send any, if it has some."""
        sources = getattr(self._llm, "get_kv_event_sources", dict)  # older vLLM has none
        proof = self.kv_events = KvEventsProof(sources())
        block = self._llm.vllm_config.cache_config.block_size
        if self.generates and block + 1 < self.facts.context_length:
            await proof.begin(partial(self._fill_block, block))

    async def _fill_block(self, block: int, rank: int, attempt: int) -> None:
        from vllm.sampling_params import SamplingParams

        ids = [1] * (block + 1)
        prompt = {"prompt_token_ids": ids, "cache_salt": f"penstock-{attempt}"}
        sampling = SamplingParams(max_tokens=1, temperature=0.0)
        options = RequestOptions(data_parallel_rank=rank)
        await self._run_uncounted(prompt, sampling, options)

    async def _run_uncounted(
        self, prompt: Any, params: Any, options: RequestOptions = NO_OPTIONS
    ) -> None:
        """Run a request of our own, which metrics do not show."""
        async for _ in self.generate(prompt, params, None, options):
            pass
        self.statistics.forget_own_request()

    async def close(self) -> None:
        """Stop loading adapters, then the engine."""
        await self.kv_events.close()
        if self.adapters is not None:
            await self.adapters.close()
        self.stop()

    def stop(self) -> None:
        """Shut down the engine and all processes that it has started.

        Blocks the event loop for about a second on purpose: the engine's own task there would
        take the shutdown for a failure.
        """
        if self._llm is None:
            return
        try:
            self._llm.shutdown(timeout=_GRACE)
        except Exception:  # it may be half dead
            logger.exception("vLLM did not shut down cleanly")
        self._llm = None  # otherwise its finalizer fails at interpreter exit
        killed = kill_leftovers(self._children)
        if killed:
            logger.warning("killed %d processes that vLLM had left behind", killed)


def _named(options: RequestOptions, lora: Any, headers: Mapping[str, str] | None) -> dict[str, Any]:
    """The keywords of vLLM's methods for a request."""
    return {
        "lora_request": lora,
        "trace_headers": headers,
        "priority": options.priority,
        "session_id": options.session_id,
        "data_parallel_rank": options.data_parallel_rank,
    }


def _on_cpu() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def _has_compiler() -> bool:
    """Whether torch can compile CPU kernels; without, requests that need one crash the engine."""
    return shutil.which(os.environ.get("CXX", "g++")) is not None


def _start(arguments: EngineArguments, statistics: VllmStatistics) -> tuple[Inside, Any]:
    try:
        with uncollected():
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM
    except ImportError as error:
        raise BackendNotInstalledError(f"{NOT_INSTALLED} ({error})") from error
    keywords = engine_keywords(arguments)
    inside = Inside()
    with noted_failure() if inside.has("start") else nullcontext(str) as cause:
        try:
            return inside, AsyncLLM.from_engine_args(
                AsyncEngineArgs(**keywords), stat_loggers=[logger_factory(statistics)]
            )
        except Exception as error:  # unknown arguments, missing files, too little memory ...
            why = cause() or str(error)
            text = f"vLLM cannot start with '{arguments.path}': {why}{advice(arguments, why)}"
            raise ModelLoadError(text) from error
