"""`Measurement`: which latencies of models are measured, and how (contract CL-36)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile from 0 to 1, and how far its rank may be off; ranks here are exact."""

    quantile: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Names and defaults are those of the settings of `--metrics-config`."""

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
