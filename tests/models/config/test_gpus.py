"""Which GPUs are there: driver and environment are given, nothing is asked of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.models.config.gpus import visible_gpus


@pytest.mark.contract("I-18")
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, [0, 1]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2"}, [0, 1]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "1,7,0"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "7"}, []),
        ({"CUDA_VISIBLE_DEVICES": "MIG-8d0b2d3f"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8d0b2d3f,GPU-5fd4f087"}, [0, 1]),
    ],
)
def test_the_environment_limits_the_devices(
    tmp_path: Path, environment: dict[str, str], expected: list[int]
) -> None:
    for bus in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / bus).mkdir()
    assert visible_gpus(tmp_path, environment) == expected


def test_without_a_driver_there_are_none(tmp_path: Path) -> None:
    assert visible_gpus(tmp_path / "absent", {}) == []
