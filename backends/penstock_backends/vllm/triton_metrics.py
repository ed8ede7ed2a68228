"""Metrics under the names of Triton's vLLM backend, for models that ask for them (VL-19, VL-20)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.backend import TRITON_VLLM_METRICS, Histogram, ModelConfig

PARAMETER: Final = "REPORT_CUSTOM_METRICS"
"""The parameter of a configuration that asks for them, with `true`."""

_LENGTHS: Final = ("vllm:request_prompt_tokens", "vllm:request_generation_tokens")


class TritonMetrics:
    """Counters and histograms since the engine's start; `longest` is its context in tokens."""

    def __init__(self, longest: int) -> None:
        self._prompt = self._generation = 0
        self.histograms = {
            name: Histogram([*lengths(longest)] if name in _LENGTHS else metric.bounds)
            for name, metric in TRITON_VLLM_METRICS.items()
            if metric.bounds or name in _LENGTHS
        }

    def metrics(self) -> Mapping[str, float]:
        """The counters by name."""
        return {
            "vllm:prompt_tokens_total": self._prompt,
            "vllm:generation_tokens_total": self._generation,
        }

    def record(self, iteration: Any) -> None:
        """Record vLLM's report of one step."""
        self._prompt += iteration.num_prompt_tokens
        self._generation += iteration.num_generation_tokens
        self._observe("time_to_first_token_seconds", iteration.time_to_first_tokens_iter)
        self._observe("time_per_output_token_seconds", iteration.inter_token_latencies_iter)
        ended = iteration.finished_requests
        self._observe("e2e_request_latency_seconds", [one.e2e_latency for one in ended])
        self._observe("request_prompt_tokens", [one.num_prompt_tokens for one in ended])
        self._observe("request_generation_tokens", [one.num_generation_tokens for one in ended])
        self._observe("request_params_n", iteration.n_params_iter)

    def _observe(self, name: str, numbers: list[float]) -> None:
        histogram = self.histograms[f"vllm:{name}"]
        for number in numbers:
            histogram.observe(number)


def lengths(longest: int) -> Iterator[float]:
    """1, 2, 5, 10, 20, 50 and so on, up to the longest."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power > longest:
                return
            yield float(digit * power)
        power *= 10


def wants_triton_metrics(config: ModelConfig) -> bool:
    """Whether the configuration of a model asks for these metrics."""
    return (config.parameter(PARAMETER) or "").lower() == "true"
