"""Steps of ensembles that fit together."""

from __future__ import annotations

from typing import Any

import pytest

from harness.outcomes import raises_nothing
from models.config.validation.written import CPU, TENSOR, configured, refusal
from penstock.core.config import ModelConfig
from penstock.models.config.validation import validate

STEP = {"model_name": "a", "input_map": {"A": "A"}, "output_map": {"A": "B"}}


def _ensemble(*steps: dict[str, Any], **written: Any) -> ModelConfig:
    base = {
        "backend": "",
        "platform": "ensemble",
        "output": [{**TENSOR, "name": "B"}],
        "instance_group": [],
        "ensemble_scheduling": {"step": list(steps)},
    }
    return configured(**{**base, **written})


def test_ensemble_that_is_right_passes() -> None:
    with raises_nothing():
        validate(_ensemble(STEP))


@pytest.mark.contract("AC-14")
@pytest.mark.parametrize(
    ("tensors", "problem"),
    [
        ({"output": []}, "ensemble tensor 'B' is unused in ensemble 'm'"),
        (
            {"input": []},
            "output 'B' for ensemble 'm' is not written: at least one of its depending tensors,"
            " 'A', is not connected",
        ),
    ],
)
def test_tensors_of_an_ensemble_are_not_filled_in(tensors: dict[str, Any], problem: str) -> None:
    """As the real server has it, whose texts these are."""
    assert refusal(_ensemble(STEP, **tensors)) == problem


@pytest.mark.contract("C-39")
@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            _ensemble(ensemble_scheduling=None),
            "ensemble scheduling must be set for ensemble m whose platform is ensemble",
        ),
        (
            _ensemble(STEP, platform="", backend="identity"),
            "ensemble scheduling cannot be set for model 'm' whose platform is not ensemble",
        ),
        (
            _ensemble(STEP, instance_group=CPU),
            "instance group should not be specified for ensemble 'm'",
        ),
        (
            _ensemble(STEP, optimization={}),
            "optimization should not be specified for ensemble 'm'",
        ),
        (
            _ensemble(STEP, model_warmup=[{}]),
            "model_warmup can not be specified for ensemble 'm'",
        ),
        (_ensemble(), "must specify 'step' for ensemble 'm'"),
        (
            _ensemble(STEP, {**STEP, "model_name": ""}),
            "must specify 'model_name' in step 1 of ensemble 'm'",
        ),
        (
            _ensemble({**STEP, "input_map": {}}),
            "must specify 'input_map' in step 0 of ensemble 'm'",
        ),
        (
            _ensemble({**STEP, "output_map": {}}),
            "must specify 'output_map' in step 0 of ensemble 'm'",
        ),
        (
            _ensemble(STEP, input=[{**TENSOR, "name": "C"}]),
            "ensemble input 'C' for ensemble m' is not used",
        ),
        (
            _ensemble(STEP, output=[{**TENSOR, "name": "C"}]),
            "ensemble output 'C' for ensemble m' is not used",
        ),
    ],
)
def test_ensemble_fits_together(config: ModelConfig, problem: str) -> None:
    assert refusal(config) == problem
