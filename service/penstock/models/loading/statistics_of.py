"""Creates the statistics of a model version: counters, latency summaries, histograms."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.core.config import ModelConfig
from penstock.inflight.statistics import Statistics, SummarizedStatistics
from penstock.metrics.histogram import Histogram
from penstock.metrics.measurement import Measurement

FIRST_RESPONSE = "nv_inference_first_response_histogram_ms"
BOUNDS = (100.0, 500.0, 2000.0, 5000.0)
"""Default bucket bounds in milliseconds (ME-14)."""

_EACH_RESPONSE = "penstock.response_statistics"
"""The parameter that enables statistics by index of the response (first, second, ...)."""

logger = logging.getLogger(__name__)


def statistics_of(config: ModelConfig, measurement: Measurement) -> Statistics:
    """New counters of a model version, from its configuration and the server's settings."""
    statistics = SummarizedStatistics() if measurement.summary_latencies else Statistics()
    statistics.each_response = config.parameter(_EACH_RESPONSE) == "true"
    statistics.decoupled = config.decoupled
    bounds = _bounds(config)
    if measurement.histogram_latencies and config.decoupled:
        statistics.first_response = Histogram(bounds)
    return statistics


def _bounds(config: ModelConfig) -> Sequence[float]:
    """The buckets of the first-response histogram; warns of controls of other metrics (C-38)."""
    bounds: Sequence[float] = BOUNDS
    controls = config.model_metrics.metric_control if config.model_metrics is not None else ()
    for control in controls:
        assert control.metric_identifier is not None
        assert control.histogram_options is not None
        family = control.metric_identifier.family
        if family == FIRST_RESPONSE:
            bounds = control.histogram_options.buckets
        else:
            logger.warning(
                "model '%s': metric_control of family '%s' is ignored, only '%s' can be changed",
                config.name,
                family,
                FIRST_RESPONSE,
            )
    return bounds
