"""`Measurement`: which latency metrics are kept, and under which names engines report (CL-36)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile, 0 to 1, and the allowed error of its rank; ranks here are exact."""

    quantile: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The settings of `--metrics-config`, by the same names and defaults.

    With `vllm_names` the load of language models stands under vLLM's names, too.
    """

    counter_latencies: bool = True
    histogram_latencies: bool = False
    summary_latencies: bool = False
    summary_quantiles: tuple[Quantile, ...] = (
        Quantile(0.5, 0.05),
        Quantile(0.9, 0.01),
        Quantile(0.95, 0.001),
        Quantile(0.99, 0.001),
        Quantile(0.999, 0.001),
    )
    vllm_names: bool = False
