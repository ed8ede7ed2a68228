"""Limits on the memory of GPUs."""

from __future__ import annotations

import pytest

from harness.outcomes import raises_nothing
from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig
from penstock.core.errors import UnavailableError
from penstock.models.loading.build_version import check_gpu_memory

pytestmark = pytest.mark.contract("M-13", "CL-46")

ON_GPUS = InstanceGroup(kind=InstanceKind.KIND_GPU, gpus=(0, 1))
ON_CPU = InstanceGroup(kind=InstanceKind.KIND_CPU)


def _config(*groups: InstanceGroup) -> ModelConfig:
    return ModelConfig(name="m", instance_group=groups)


def test_a_gpu_above_its_limit_takes_no_more_models() -> None:
    used = {0: 0.5, 1: 0.91}.__getitem__
    with pytest.raises(UnavailableError) as refused:
        check_gpu_memory(_config(ON_CPU, ON_GPUS), {0: 0.9, 1: 0.9}, used)
    assert refused.value.message == (
        "can not create model 'm': memory limit set for GPU 1 has exceeded, "
        "model loading is rejected."
    )


@pytest.mark.parametrize(
    ("group", "limits"), [(ON_GPUS, {0: 1.0, 1: 0.95}), (ON_GPUS, {}), (ON_CPU, {0: 0.1})]
)
def test_others_are_loaded(group: InstanceGroup, limits: dict[int, float]) -> None:
    with raises_nothing():
        check_gpu_memory(_config(group), limits, lambda _: 0.95)
