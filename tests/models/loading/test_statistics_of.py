"""Which statistics a model gets."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.core.config import config_from_json
from penstock.inflight.statistics import SummarizedStatistics
from penstock.metrics.measurement import Measurement
from penstock.models.loading.statistics_of import FIRST_RESPONSE, statistics_of

HISTOGRAMS = Measurement(histogram_latencies=True)
DECOUPLED = {"name": "m", "model_transaction_policy": {"decoupled": True}}


def bounds(measurement: Measurement, config: dict[str, Any]) -> list[float] | None:
    histogram = statistics_of(config_from_json(config), measurement).first_response
    return None if histogram is None else [bound for bound, _ in histogram.buckets]


def controlled(family: str) -> dict[str, Any]:
    control = {
        "metric_identifier": {"family": family},
        "histogram_options": {"buckets": [1, 2.5]},
    }
    return {**DECOUPLED, "model_metrics": {"metric_control": [control]}}


@pytest.mark.contract("DC-06", "ME-14")
def test_first_responses_are_measured_of_decoupled_models_that_are_to_be() -> None:
    assert bounds(HISTOGRAMS, DECOUPLED) == [100, 500, 2000, 5000, float("inf")]
    assert bounds(HISTOGRAMS, {"name": "m"}) is None
    assert bounds(Measurement(), DECOUPLED) is None


@pytest.mark.contract("C-38")
def test_a_model_may_have_its_own_buckets() -> None:
    assert bounds(HISTOGRAMS, controlled(FIRST_RESPONSE)) == [1, 2.5, float("inf")]


@pytest.mark.contract("C-38")
def test_another_metric_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert bounds(HISTOGRAMS, controlled("nv_other")) == [100, 500, 2000, 5000, float("inf")]
    assert "metric_control of family 'nv_other' is ignored" in caplog.text


@pytest.mark.contract("ME-15")
def test_summaries_are_made_where_they_are_asked_for() -> None:
    summaries = Measurement(summary_latencies=True)
    assert isinstance(statistics_of(config_from_json({}), summaries), SummarizedStatistics)
    assert not isinstance(statistics_of(config_from_json({}), HISTOGRAMS), SummarizedStatistics)
