"""Instances that run where they can."""

from __future__ import annotations

from typing import Any

import pytest

from harness.outcomes import raises_nothing
from models.config.validation.written import configured, refusal
from penstock.core.config import ModelConfig
from penstock.models.config.validation import validate

_WITHOUT_GPUS = (
    "; write 'kind: KIND_CPU' without 'gpus' in its instance_group, or start the server with"
    " --cpu-only (or TRITON_SERVER_CPU_ONLY=1), which serves such groups on the CPU"
)


def _instances(**group: Any) -> ModelConfig:
    return configured(instance_group=[{"name": "m_0", "count": 1, **group}])


@pytest.mark.parametrize(
    ("group", "gpus", "problem"),
    [
        (
            {"kind": "KIND_CPU", "gpus": [0]},
            (0,),
            "has kind KIND_CPU but specifies one or more GPUs",
        ),
        (
            {"kind": "KIND_MODEL", "gpus": [0]},
            (0,),
            "has kind KIND_MODEL but specifies one or more GPUs",
        ),
        ({"kind": "KIND_GPU"}, (), f"has kind KIND_GPU but no GPUs are available{_WITHOUT_GPUS}"),
        (
            {"kind": "KIND_GPU", "gpus": [0]},
            (),
            "specifies invalid or unsupported gpu id 0. GPUs with at least the minimum required "
            f"CUDA compute compatibility of 6.000000 are: none{_WITHOUT_GPUS}",
        ),
        ({"kind": "KIND_GPU"}, (0,), "has kind KIND_GPU but specifies no GPUs"),
        (
            {"kind": "KIND_GPU", "gpus": [2]},
            (0, 1),
            "specifies invalid or unsupported gpu id 2. GPUs with at least the minimum required "
            "CUDA compute compatibility of 6.000000 are: 0, 1",
        ),
        ({"kind": "KIND_AUTO"}, (), "has unexpected kind KIND_AUTO"),
        (
            {"kind": "KIND_CPU", "profile": ["1"]},
            (),
            "and platform specifies profile field which is only supported for TensorRT models",
        ),
    ],
)
@pytest.mark.contract("I-02", "I-03", "I-06")
def test_instances_run_where_they_can(
    group: dict[str, Any], gpus: tuple[int, ...], problem: str
) -> None:
    assert refusal(_instances(**group), gpus) == f"instance group m_0 of model m {problem}"


def test_model_has_instances() -> None:
    problem = "must specify one or more 'instance group's for m"
    assert refusal(configured(instance_group=[])) == problem


def test_instances_on_gpus_that_are_there_pass() -> None:
    with raises_nothing():
        validate(_instances(kind="KIND_GPU", gpus=[1]), (0, 1))
