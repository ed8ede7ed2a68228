"""The metrics of language models: declared here once, reported by every engine's backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.metrics.exposition import MetricKind

PREFIX: Final = "penstock_llm_"


@dataclass(frozen=True, slots=True)
class DeclaredMetric:
    """One family: its name, what it is, and the upper bounds of its buckets if it has any."""

    name: str
    description: str
    kind: MetricKind
    bounds: tuple[float, ...] = ()


def _gauge(name: str, description: str) -> DeclaredMetric:
    return DeclaredMetric(PREFIX + name, description, MetricKind.GAUGE)


def _counter(name: str, description: str) -> DeclaredMetric:
    return DeclaredMetric(f"{PREFIX}{name}_total", description, MetricKind.COUNTER)


def _histogram(name: str, description: str, bounds: tuple[float, ...]) -> DeclaredMetric:
    return DeclaredMetric(PREFIX + name, description, MetricKind.HISTOGRAM, bounds)


def _triton(
    name: str, description: str, bounds: tuple[float, ...] = (), kind: MetricKind | None = None
) -> DeclaredMetric:
    return DeclaredMetric(f"vllm:{name}", description, kind or MetricKind.HISTOGRAM, bounds)


_TRITON_WAITS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1),
    *(0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)
_WAITS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_STEPS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
_WHOLE = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
_LENGTHS = tuple(float(4**power) for power in range(10))

LANGUAGE_MODEL_METRICS: Final = {
    metric.name: metric
    for metric in (
        _gauge("running_requests", "Sequences that the engine generates"),
        _gauge("waiting_requests", "Sequences that wait for a place in the engine"),
        _gauge("max_running_requests", "Sequences that the engine generates at most at once"),
        _gauge("queued_requests", "Requests, in the server and the engine, without a first token"),
        _gauge("queued_tokens", "Prompt tokens of requests without a first token, as estimated"),
        _counter("tenant_requests", "Requests of a tenant that were admitted"),
        _counter("tenant_cancelled_requests", "Requests of a tenant whose clients left"),
        _counter("tenant_failed_requests", "Requests of a tenant that ended with an error"),
        _counter("tenant_prompt_tokens", "Tokens of a tenant's prompts that were begun with"),
        _counter("tenant_cached_tokens", "Tokens of a tenant's prompts from the prefix cache"),
        _counter("tenant_generated_tokens", "Tokens that were generated for a tenant"),
        _gauge("kv_cache_usage", "Share of the KV cache that is in use [0.0 - 1.0]"),
        _gauge("cache_config_info", "The KV cache in its labels: blocks, and tokens of a block"),
        _gauge(
            "lora_requests_info", "LoRA adapters that requests run and wait with, in its labels"
        ),
        _counter("requests", "Requests that the engine was given"),
        _counter("cancelled_requests", "Requests whose clients left before the end"),
        _counter("failed_requests", "Requests that the engine failed"),
        _counter("prefill_tokens", "Tokens of prompts that the engine has begun with"),
        _counter("generation_tokens", "Tokens that the engine has generated"),
        _counter("cached_tokens", "Tokens of prompts that the prefix cache had"),
        _counter("wasted_tokens", "Tokens that were generated after the client had left"),
        _counter("spec_draft_tokens", "Tokens that speculative decoding has proposed"),
        _counter("spec_accepted_tokens", "Tokens of these that the model has accepted"),
        _counter("rejected", "Requests that were refused before they were begun, by reason"),
        _counter("engine_steps", "Steps of the engine"),
        _counter("preemptions", "Times that a running request lost its KV cache to others"),
        _histogram(
            "queue_seconds",
            "Time that requests waited, for their tenant's turn and their place in the engine",
            _WAITS,
        ),
        _histogram(
            "time_to_first_token_seconds",
            "Time to a request's first token, from its wait for its tenant's turn on",
            _WAITS,
        ),
        _histogram(
            "inter_token_seconds",
            "Time between two outputs of a request",
            _STEPS,
        ),
        _histogram(
            "time_per_output_token_seconds",
            "Time of a token after the first, on average of a request",
            _STEPS,
        ),
        _histogram(
            "request_seconds",
            "Time to a request's last token, from its wait for its tenant's turn on",
            _WHOLE,
        ),
        _histogram("prompt_tokens", "Tokens of a request's prompt", _LENGTHS),
        _histogram("generated_tokens", "Tokens that were generated for a request", _LENGTHS),
    )
}
"""The families by name; those of requests count the ones that were answered whole."""

VLLM_NAMES: Final = {
    PREFIX + name: f"vllm:{theirs}"
    for name, theirs in (
        ("waiting_requests", "num_requests_waiting"),
        ("running_requests", "num_requests_running"),
        ("kv_cache_usage", "kv_cache_usage_perc"),
        ("lora_requests_info", "lora_requests_info"),
        ("cache_config_info", "cache_config_info"),
    )
}
"""The names that vLLM itself gives to families of ours, which Kubernetes gateways read."""

TRITON_VLLM_METRICS: Final = {
    metric.name: metric
    for metric in (
        _triton(
            "prompt_tokens_total", "Number of prefill tokens processed.", (), MetricKind.COUNTER
        ),
        _triton(
            "generation_tokens_total",
            "Number of generation tokens processed.",
            (),
            MetricKind.COUNTER,
        ),
        _triton(
            "time_to_first_token_seconds",
            "Histogram of time to first token in seconds.",
            _TRITON_WAITS,
        ),
        _triton(
            "time_per_output_token_seconds",
            "Histogram of time per output token in seconds.",
            (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
        ),
        _triton(
            "e2e_request_latency_seconds",
            "Histogram of end to end request latency in seconds.",
            (1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
        ),
        _triton("request_prompt_tokens", "Number of prefill tokens processed."),
        _triton("request_generation_tokens", "Number of generation tokens processed."),
        _triton(
            "request_params_n",
            "Histogram of the n request parameter.",
            (1.0, 2.0, 5.0, 10.0, 20.0),
        ),
    )
}
"""The families of Triton's vLLM backend (VL-20); bounds of lengths depend on the context."""
