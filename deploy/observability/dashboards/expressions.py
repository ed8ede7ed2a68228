"""Expressions of PromQL that dashboards have in common.

They read counters and gauges by the names that Triton has, so that they work on its metrics as
well; what only this server has begins with `penstock_`. Idle models are left out of averages.
"""

from __future__ import annotations

from collections.abc import Callable

SELECTED = 'instance=~"$instance",model=~"$model"'
"""The servers and models that are chosen on top of the dashboard."""

_PERCENTILES = {"p50": "0.5", "p95": "0.95", "p99": "0.99"}


def rate(metric: str, by: str = "model", matching: str = "") -> str:
    """The growth of a counter in a second, summed up by a label."""
    labels = ",".join(filter(None, (SELECTED, matching)))
    return f"sum by ({by}) (rate({metric}{{{labels}}}[$__rate_interval]))"


def total_rate(metric: str) -> str:
    """The growth of a counter in a second, in all."""
    return f"sum(rate({metric}{{{SELECTED}}}[$__rate_interval]))"


def average(total: str, count: str) -> str:
    """The mean of a total over its events, by model."""
    return f"{rate(total)} / ({rate(count)} > 0)"


def gauge(metric: str) -> str:
    """A gauge, summed up by model."""
    return f"sum by (model) ({metric}{{{SELECTED}}})"


def worst(metric: str) -> str:
    """The largest value of a gauge, by model."""
    return f"max by (model) ({metric}{{{SELECTED}}})"


def summary(metric: str, quantile: str) -> str:
    """A quantile that the server computed, of the slowest server; idle models have none."""
    labels = f'{SELECTED},quantile="{quantile}"'
    return f"max by (model) ({metric}{{{labels}}} >= 0)"


def quantile(histogram: str, share: str) -> str:
    """A quantile of a histogram, interpolated within its bucket."""
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', by='model, le')})"


def percentiles(of: Callable[[str], str]) -> list[tuple[str, str]]:
    """A line for each model and percentile: its legend, and `of` the percentile as a share."""
    return [(f"{{{{model}}}} {name}", of(share)) for name, share in _PERCENTILES.items()]


def either(*expressions: str) -> str:
    """The first of these that has a value for a model, as engines name things differently."""
    return " or ".join(expressions)
