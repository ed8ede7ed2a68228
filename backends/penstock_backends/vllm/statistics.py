"""Metrics that vLLM's engine reports at each step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.backend import Histogram, series_name
from penstock_backends.language_model import ENGINE_REQUESTS, ENGINE_TOKENS, EngineStatistics
from penstock_backends.vllm.output_owners import OutputOwners, Owner
from penstock_backends.vllm.triton_metrics import TritonMetrics

_WHOLE = ("STOP", "LENGTH")
"""Reasons for the end of requests that were neither cancelled nor failed."""


class _Load(NamedTuple):
    """The load of one of several engines; adapters by whether their requests run or wait."""

    running: int
    waiting: int
    cache_usage: float
    running_adapters: frozenset[str] = frozenset()
    waiting_adapters: frozenset[str] = frozenset()


@dataclass(slots=True)
class VllmStatistics(EngineStatistics):
    """Statistics of a vLLM engine, updated by `record`.

    `longest` is the engine's context in tokens; 0 if it keeps no statistics. `adapters` describes
    the LoRA adapters of requests, under vLLM's names, and `adapters_at` when it was so.
    `places` is how many requests each engine runs at once, by its number: with data parallelism
    there are several, of whose loads `loads` has the last reports. `owners` are those of the
    outputs in the next report.
    """

    cached_tokens: int | None = 0
    preemptions: int | None = 0
    rejected: dict[str, int] = field(default_factory=lambda: {ENGINE_REQUESTS: 0, ENGINE_TOKENS: 0})
    longest: int = 0
    most_adapters: int = 0
    adapters: Mapping[str, str] = field(default_factory=dict)
    adapters_at: float = 0.0
    places: dict[int, int] = field(default_factory=dict)
    loads: dict[int, _Load] = field(default_factory=dict)
    triton: TritonMetrics | None = None
    owners: OutputOwners = field(default_factory=OutputOwners)

    def report_as_triton(self) -> None:
        """Report under the names of Triton's vLLM backend too, if the engine keeps statistics."""
        if self.longest:
            self.triton = TritonMetrics(self.longest)

    def distributions(self) -> Mapping[str, Histogram]:
        """The histograms by series."""
        own = EngineStatistics.distributions(self)
        return own if self.triton is None else {**own, **self.triton.histograms}

    def metrics(self) -> Mapping[str, float]:
        """The values by metric name."""
        own = {**EngineStatistics.metrics(self)}
        own["penstock_llm_max_running_requests"] = sum(self.places.values())
        if self.adapters:
            own[series_name("penstock_llm_lora_requests_info", **self.adapters)] = self.adapters_at
        return own if self.triton is None else {**own, **self.triton.metrics()}

    def record(self, scheduler: Any, iteration: Any, engine: int = 0) -> None:
        """Record the report of one engine's step; either part may be `None`."""
        if scheduler is not None:
            self._note_load(scheduler, engine)
            self._count_drafts(scheduler.spec_decoding_stats)
        if iteration is not None:
            self.prefill_tokens += iteration.num_prompt_tokens
            self.cached_tokens = (
                self.cached_tokens or 0
            ) + iteration.prompt_token_stats.cached_tokens
            self.generation_tokens += iteration.num_generation_tokens
            self.preemptions = (self.preemptions or 0) + iteration.num_preempted_reqs
            self._observe_times(iteration)
            if self.triton is not None:
                self.triton.record(iteration)

    def _count_drafts(self, drafts: Any) -> None:
        """Count the tokens of speculative decoding, where the engine has it."""
        if drafts is not None:
            self.spec_draft_tokens = (self.spec_draft_tokens or 0) + drafts.num_draft_tokens
            self.spec_accepted_tokens = (
                self.spec_accepted_tokens or 0
            ) + drafts.num_accepted_tokens

    def _note_load(self, scheduler: Any, engine: int) -> None:
        """Note what an engine runs: requests of all are added up, the use of caches is a mean."""
        load = _Load(
            scheduler.num_running_reqs,
            scheduler.num_waiting_reqs + scheduler.num_skipped_waiting_reqs,
            scheduler.kv_cache_usage,
        )
        if self.most_adapters:
            load = load._replace(
                running_adapters=frozenset(scheduler.running_lora_adapters),
                waiting_adapters=frozenset(scheduler.waiting_lora_adapters),
            )
        self.loads[engine] = load
        loads = self.loads.values()
        self.running = sum(one.running for one in loads)
        self.waiting = sum(one.waiting for one in loads)
        self.cache_usage = sum(one.cache_usage for one in loads) / len(loads)
        if self.most_adapters:
            self._note_adapters()

    def _note_adapters(self) -> None:
        loads = self.loads.values()
        running = frozenset[str]().union(*(one.running_adapters for one in loads))
        waiting = frozenset[str]().union(*(one.waiting_adapters for one in loads))
        self.adapters = {
            "max_lora": str(self.most_adapters),
            "running_lora_adapters": ",".join(sorted(running)),
            "waiting_lora_adapters": ",".join(sorted(waiting)),
        }
        self.adapters_at = time.time()

    def _observe_times(self, iteration: Any) -> None:
        owners, self.owners = self.owners, OutputOwners()
        for seconds, owner in zip(iteration.time_to_first_tokens_iter, owners.first, strict=False):
            self.observe("time_to_first_token_seconds", seconds + owner.waited, tenant=owner.tenant)
        for seconds, owner in zip(iteration.inter_token_latencies_iter, owners.later, strict=False):
            self.observe("inter_token_seconds", seconds, tenant=owner.tenant)
        for request in iteration.finished_requests:
            if request.finish_reason.name in _WHOLE:
                self._observe_whole(request, owners.of(request.request_id))

    def _observe_whole(self, request: Any, owner: Owner) -> None:
        """Observe one of vLLM's finished requests."""
        queued = request.queued_time + owner.waited
        values = {
            "queue_seconds": queued,
            # By the clock of the engine's process, as in the request's own timeline.
            "request_seconds": queued + request.inference_time,
            "prompt_tokens": request.num_prompt_tokens,
            "generated_tokens": request.num_generation_tokens,
        }
        if request.num_generation_tokens > 1:
            values["time_per_output_token_seconds"] = request.mean_time_per_output_token
        for name, value in values.items():
            self.observe(name, value, tenant=owner.tenant)


def logger_factory(statistics: VllmStatistics) -> Callable[[Any, int], Any]:
    """A factory of vLLM stat loggers that write to `statistics`."""
    from vllm.v1.metrics.loggers import StatLoggerBase

    class Recorder(StatLoggerBase):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            statistics.longest = vllm_config.model_config.max_model_len
            self._cache = vllm_config.cache_config
            lora = vllm_config.lora_config
            statistics.most_adapters = 0 if lora is None else lora.max_loras
            if vllm_config.speculative_config is not None:
                statistics.spec_draft_tokens = statistics.spec_accepted_tokens = 0
            statistics.places[engine_index] = vllm_config.scheduler_config.max_num_seqs

        def record(
            self,
            scheduler_stats: Any,
            iteration_stats: Any,
            mm_cache_stats: Any = None,
            engine_idx: int = 0,
        ) -> None:
            statistics.record(scheduler_stats, iteration_stats, engine_idx)

        def log_engine_initialized(self) -> None:
            known = self._cache.block_size, self._cache.num_gpu_blocks
            statistics.cache_config = {
                name: str(number)
                for name, number in zip(("block_size", "num_gpu_blocks"), known, strict=True)
                if number is not None
            }

    return Recorder
