"""Metrics that TensorRT-LLM's engine reports at each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock_backends.language_model import EngineStatistics

_STEP: Final = {
    'nv_trt_llm_request_metrics{request_type="max"}': "maxNumActiveRequests",
    'nv_trt_llm_runtime_memory_metrics{memory_type="cpu"}': "cpuMemUsage",
    'nv_trt_llm_runtime_memory_metrics{memory_type="gpu"}': "gpuMemUsage",
    'nv_trt_llm_runtime_memory_metrics{memory_type="pinned"}': "pinnedMemUsage",
    'nv_trt_llm_general_metrics{general_type="iteration_counter"}': "iter",
}
_BATCH: Final = {
    'nv_trt_llm_request_metrics{request_type="context"}': "numContextRequests",
    'nv_trt_llm_request_metrics{request_type="scheduled"}': "numScheduledRequests",
    **{
        f'nv_trt_llm_inflight_batcher_metrics{{inflight_batcher_specific_metric="{kind}"}}': key
        for kind, key in {
            "micro_batch_id": "microBatchId",
            "generation_requests": "numGenRequests",
            "total_context_tokens": "numCtxTokens",
        }.items()
    },
}
_BLOCKS: Final = {
    f'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="{kind}"}}': field
    for kind, field in {
        "max": "maxNumBlocks",
        "free": "freeNumBlocks",
        "used": "usedNumBlocks",
        "tokens_per": "tokensPerBlock",
        "reused": "reusedBlocks",
    }.items()
}
_WAITING: Final = 'nv_trt_llm_request_metrics{request_type="waiting"}'
_ACTIVE: Final = 'nv_trt_llm_request_metrics{request_type="active"}'
_SCHEDULED: Final = 'nv_trt_llm_request_metrics{request_type="scheduled"}'
_CONTEXT: Final = 'nv_trt_llm_request_metrics{request_type="context"}'
_FRACTION: Final = 'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"}'


@dataclass(slots=True)
class TensorRtLlmStatistics(EngineStatistics):
    """Statistics of an engine, updated by `record`; `open` counts the requests that it has.

    An engine reports steps and then no more: without requests, none waits or runs. `paused` counts
    the times that a running request lost its place.
    """

    open: int = 0
    paused: int = 0
    reported: dict[str, float] = field(default_factory=dict)

    def record(self, step: Mapping[str, Any]) -> None:
        """Record the engine's report of one step."""
        batch = step.get("inflightBatchingStats") or {}
        blocks = step.get("kvCacheStats") or {}
        active = int(step.get("numActiveRequests", 0))
        self.running = int(batch.get("numScheduledRequests", active))
        self.waiting = max(0, active - self.running) + int(step.get("numQueuedRequests", 0))
        self.paused += int(batch.get("numPausedRequests", 0))
        self._count_drafts(step.get("specDecodingStats") or {})
        if most := blocks.get("maxNumBlocks"):
            self.cache_usage = blocks.get("usedNumBlocks", 0) / most
            self.reported[_FRACTION] = self.cache_usage
        self.reported |= {_ACTIVE: active, _WAITING: self.waiting}
        for source, names in ((step, _STEP), (batch, _BATCH), (blocks, _BLOCKS)):
            self.reported |= {
                name: float(source[key]) for name, key in names.items() if key in source
            }

    def _count_drafts(self, drafts: Mapping[str, Any]) -> None:
        """Count the tokens of speculative decoding, where the engine reports them."""
        if "numDraftTokens" in drafts:
            accepted = int(drafts.get("numAcceptedTokens", 0))
            self.spec_draft_tokens = (self.spec_draft_tokens or 0) + int(drafts["numDraftTokens"])
            self.spec_accepted_tokens = (self.spec_accepted_tokens or 0) + accepted

    def metrics(self) -> Mapping[str, float]:
        """The values by metric name: ours, and TensorRT-LLM's own (TL-24, TL-26)."""
        if not self.reported:  # the engine keeps no statistics
            self.running = self.open
        elif not self.open:
            self.running = self.waiting = 0
            self.reported |= {_ACTIVE: 0, _WAITING: 0, _SCHEDULED: 0, _CONTEXT: 0}
        own = EngineStatistics.metrics(self)
        return {**own, "penstock_llm_preemptions_total": self.paused, **self.reported}
