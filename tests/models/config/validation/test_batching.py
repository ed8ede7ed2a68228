"""Dynamic batching that fits together."""

from __future__ import annotations

from typing import Any

import pytest

from harness.outcomes import raises_nothing
from models.config.validation.written import configured, refusal
from penstock.models.config.validation import validate

DELAY = {"timeout_action": "DELAY", "default_timeout_microseconds": 5}


@pytest.mark.contract("C-07", "D-08")
@pytest.mark.parametrize(
    ("batching", "problem"),
    [
        ({"preferred_batch_size": [4, 0]}, "dynamic batching preferred size must be positive"),
        (
            {"preferred_batch_size": [9]},
            "dynamic batching preferred size must be <= max batch size",
        ),
        ({"priority_levels": 2}, "default priority level must be in range [1, 2]"),
        (
            {"priority_levels": 2, "default_priority_level": 5},
            "default priority level must be in range [1, 2]",
        ),
        (
            {
                "priority_levels": 2,
                "default_priority_level": 1,
                "priority_queue_policy": {"1": {}, "3": {}},
            },
            "priority queue policy must have priority level in range [1, 2]",
        ),
        (
            {"preserve_ordering": True, "priority_levels": 2, "default_priority_level": 1},
            "Only one priority level is allowed when 'preserve_ordering' is true",
        ),
        (
            {"preserve_ordering": True, "default_queue_policy": DELAY},
            "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true",
        ),
        (
            {
                "preserve_ordering": True,
                "priority_levels": 1,
                "default_priority_level": 1,
                "priority_queue_policy": {"1": DELAY},
            },
            "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true",
        ),
    ],
)
def test_dynamic_batching_fits_together(batching: dict[str, Any], problem: str) -> None:
    assert refusal(configured(dynamic_batching=batching)) == f"{problem} for m"


@pytest.mark.parametrize(
    "batching",
    [
        {},
        {"preferred_batch_size": [1, 8]},
        {"priority_levels": 2, "default_priority_level": 2, "priority_queue_policy": {"2": DELAY}},
        {"preserve_ordering": True, "default_queue_policy": {"timeout_action": "DELAY"}},
    ],
)
def test_dynamic_batching_that_is_right_passes(batching: dict[str, Any]) -> None:
    with raises_nothing():
        validate(configured(dynamic_batching=batching))


def test_model_that_does_not_batch_prefers_no_size() -> None:
    config = configured(max_batch_size=0, dynamic_batching={"preferred_batch_size": [4]})
    assert refusal(config) == "dynamic batching preferred size must be <= max batch size for m"
