"""What a model is: name, backend, batch size, cache, metrics."""

from __future__ import annotations

from typing import Any

import pytest

from harness.outcomes import raises_nothing
from models.config.validation.written import configured, refusal
from penstock.models.config.validation import validate, validate_polled


def test_config_that_is_right_passes() -> None:
    with raises_nothing():
        validate(configured())


def test_tensors_and_instances_may_still_be_missing_when_polled() -> None:
    config = configured(input=[{}], output=[{"name": "A"}], instance_group=[])
    validate_polled(config)
    assert refusal(config) == "model input must specify 'name' for m"


@pytest.mark.contract("C-03", "C-42")
@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"name": ""}, "model configuration must specify 'name'"),
        ({"backend": ""}, "unexpected platform type '' for m"),
        ({"backend": "", "platform": "mine"}, "unexpected platform type 'mine' for m"),
        (
            {"platform": "ensemble"},
            "Ensemble model 'm' must have platform type 'ensemble' and empty backend type",
        ),
        (
            {"backend": "onnxruntime", "platform": "tensorrt_plan"},
            "unexpected 'platform' and 'backend' pair, got:tensorrt_plan, onnxruntime",
        ),
        (
            {"backend": "tensorflow"},
            "unexpected 'platform' and 'backend' pair, got:, tensorflow",
        ),
        ({"max_batch_size": -1}, "'max_batch_size' must be non-negative value for m"),
        ({"version_policy": None}, "must specify 'version policy' for m"),
    ],
)
def test_model_must_be_one_thing(written: dict[str, Any], problem: str) -> None:
    assert refusal(configured(**written)) == problem


def test_unknown_backend_may_have_any_platform() -> None:
    with raises_nothing():
        validate(configured(platform="mine"))


CACHE = {"response_cache": {"enable": True}}


@pytest.mark.contract("RC-05")
def test_cached_responses_are_single() -> None:
    assert refusal(configured(**CACHE, model_transaction_policy={"decoupled": True})) == (
        "Response Cache does not currently support model m with 'decoupled' transaction policy. "
        "Please disable the response cache."
    )
    assert refusal(configured(**CACHE, sequence_batching={})) == (
        "Response Cache does not currently support model m with sequence batching scheduler. "
        "Please disable the response cache."
    )


def test_decoupled_model_may_have_its_cache_turned_off() -> None:
    decoupled = {"decoupled": True}
    with raises_nothing():
        validate(configured(response_cache={"enable": False}, model_transaction_policy=decoupled))


@pytest.mark.contract("C-38")
@pytest.mark.parametrize(
    ("control", "problem"),
    [
        ({}, "metric control must specify 'metric_identifier'"),
        ({"metric_identifier": {}}, "metric identifier must specify non-empty 'family'"),
        (
            {"metric_identifier": {"family": "f"}},
            "metric control must specify 'histogram_options'",
        ),
        (
            {"metric_identifier": {"family": "f"}, "histogram_options": {}},
            "histogram options must specify non-empty 'buckets'",
        ),
        (
            {"metric_identifier": {"family": "f"}, "histogram_options": {"buckets": [5, 1]}},
            "histogram options must specify rising 'buckets'",
        ),
        (
            {"metric_identifier": {"family": "f"}, "histogram_options": {"buckets": [1, 1]}},
            "histogram options must specify rising 'buckets'",
        ),
    ],
)
def test_change_to_a_metric_is_complete(control: dict[str, Any], problem: str) -> None:
    assert refusal(configured(model_metrics={"metric_control": [control]})) == problem


def test_complete_change_to_a_metric_passes() -> None:
    control = {"metric_identifier": {"family": "f"}, "histogram_options": {"buckets": [1, 2.5]}}
    with raises_nothing():
        validate(configured(model_metrics={"metric_control": [control]}))
