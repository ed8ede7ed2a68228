"""Enumerations: names and numbers are those of Triton's C API, which scripts may write out."""

from __future__ import annotations

from enum import IntEnum

import pytest

import penstock.in_process as tritonserver


@pytest.mark.parametrize(
    ("enumeration", "numbers"),
    [
        (tritonserver.ModelControlMode, {"NONE": 0, "POLL": 1, "EXPLICIT": 2, "DEMAND": 3}),
        (tritonserver.RateLimitMode, {"OFF": 0, "EXEC_COUNT": 1}),
        (tritonserver.LogFormat, {"DEFAULT": 0, "ISO8601": 1}),
        (tritonserver.InstanceGroupKind, {"AUTO": 0, "CPU": 1, "GPU": 2, "MODEL": 3}),
        (tritonserver.MetricKind, {"COUNTER": 0, "GAUGE": 1}),
        (tritonserver.ModelBatchFlag, {"UNKNOWN": 1, "FIRST_DIM": 2}),
        (tritonserver.ModelTxnPropertyFlag, {"ONE_TO_ONE": 1, "DECOUPLED": 2}),
        (tritonserver.RequestFlag, {"SEQUENCE_START": 1, "SEQUENCE_END": 2}),
        (tritonserver.RequestReleaseFlag, {"ALL": 1, "RESCHEDULE": 2}),
        (tritonserver.ResponseCompleteFlag, {"FINAL": 1}),
        (tritonserver.MemoryType, {"CPU": 0, "CPU_PINNED": 1, "GPU": 2}),
    ],
)
def test_numbers_are_those_of_tritons_interface(
    enumeration: type[IntEnum], numbers: dict[str, int]
) -> None:
    assert {each.name: each.value for each in enumeration} == numbers
