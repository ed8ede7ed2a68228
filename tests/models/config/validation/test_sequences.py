"""Sequence batching that fits together."""

from __future__ import annotations

from typing import Any

import pytest

from harness.outcomes import raises_nothing
from models.config.validation.written import configured, refusal
from penstock.core.config import ModelConfig
from penstock.models.config.validation import validate

START = {"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1]}
CORRID = {"kind": "CONTROL_SEQUENCE_CORRID", "data_type": "TYPE_UINT64"}


def _sequences(*tensors: tuple[str, dict[str, Any]], **more: Any) -> ModelConfig:
    inputs = [{"name": name, "control": [control]} for name, control in tensors]
    return configured(sequence_batching={"control_input": inputs, **more})


@pytest.mark.contract("S-11")
@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (_sequences(("", START)), "sequence batching control tensor must have a name for m"),
        (
            _sequences(("A", START), ("A", CORRID)),
            "sequence batching control tensor 'A' is specified for multiple control kinds for m",
        ),
        (
            _sequences(("A", START), ("B", START)),
            "sequence batching specifies multiple CONTROL_SEQUENCE_START tensors for m",
        ),
        (
            _sequences(("A", {"kind": "CONTROL_SEQUENCE_END"})),
            "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
            "'bool_false_true' for CONTROL_SEQUENCE_END for m",
        ),
        (
            _sequences(("A", {**START, "bool_false_true": [False, True]})),
            "sequence batching specifies more than one from 'int32_false_true', "
            "'fp32_false_true' and 'bool_false_true' for CONTROL_SEQUENCE_START for m",
        ),
        (
            _sequences(("A", {"fp32_false_true": [0]})),
            "sequence batching control 'fp32_false_true' must have exactly 2 entries "
            "for CONTROL_SEQUENCE_START for m",
        ),
        (
            _sequences(("A", {**CORRID, "int32_false_true": [0, 1]})),
            "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or "
            "'bool_false_true' for CONTROL_SEQUENCE_CORRID for m",
        ),
        (
            _sequences(("A", {**CORRID, "data_type": "TYPE_FP32"})),
            "unexpected data type for control CONTROL_SEQUENCE_CORRID for m. Allowed data types "
            "are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
        ),
        (
            _sequences(oldest={"preferred_batch_size": [0]}),
            "sequence batching preferred batch size must be positive for m",
        ),
        (
            _sequences(oldest={"preferred_batch_size": [9]}),
            "sequence batching preferred batch size must be <= max batch size for m",
        ),
        (
            _sequences(direct={"minimum_slot_utilization": 1.5}),
            "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m",
        ),
    ],
)
def test_sequence_batching_fits_together(config: ModelConfig, problem: str) -> None:
    assert refusal(config) == problem


def test_sequence_batching_that_is_right_passes() -> None:
    with raises_nothing():
        validate(_sequences(("A", START), ("B", CORRID), direct={"minimum_slot_utilization": 1}))
