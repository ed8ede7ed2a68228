"""The GPU that a model's metrics name."""

from __future__ import annotations

import pytest

from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig
from penstock.models.config.gpus import only_gpu

_GPU, _CPU = InstanceKind.KIND_GPU, InstanceKind.KIND_CPU


@pytest.mark.contract("ME-02")
@pytest.mark.parametrize(
    ("groups", "gpu"),
    [
        ([], None),
        ([InstanceGroup(kind=_GPU, gpus=(1,), count=2)], 1),
        ([InstanceGroup(kind=_GPU, gpus=(1,)), InstanceGroup(kind=_GPU, gpus=(1,))], 1),
        ([InstanceGroup(kind=_GPU, gpus=(0, 1))], None),
        ([InstanceGroup(kind=_GPU, gpus=(0,)), InstanceGroup(kind=_CPU)], None),
        ([InstanceGroup(kind=_CPU)], None),
    ],
)
def test_a_model_is_on_one_gpu_or_none(groups: list[InstanceGroup], gpu: int | None) -> None:
    assert only_gpu(ModelConfig(name="m", instance_group=tuple(groups))) == gpu
