"""How the cores are shared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig
from penstock.system.cpu_share import cores, share_of_cores, sharers

CPU, GPU, MODEL = InstanceKind.KIND_CPU, InstanceKind.KIND_GPU, InstanceKind.KIND_MODEL


def _config(*groups: InstanceGroup) -> ModelConfig:
    return ModelConfig(name="m", instance_group=groups)


@pytest.mark.parametrize(
    ("groups", "count"),
    [
        ([], 1),
        ([InstanceGroup(kind=CPU, count=2), InstanceGroup(kind=CPU)], 3),
        ([InstanceGroup(kind=CPU, count=2), InstanceGroup(kind=GPU, count=5)], 2),
        ([InstanceGroup(kind=CPU, count=2), InstanceGroup(kind=CPU, passive=True)], 2),
        ([InstanceGroup(kind=CPU, count=2), InstanceGroup(kind=CPU, host_policy="b")], 2),
        ([InstanceGroup(kind=MODEL, count=2)], 1),
    ],
)
def test_instances_share_the_cores_of_their_policy(groups: list[InstanceGroup], count: int) -> None:
    assert sharers(_config(*groups), "cpu") == count


def test_nobody_gets_less_than_one_core() -> None:
    assert share_of_cores(_config(InstanceGroup(kind=CPU, count=1000))) == 1
    assert share_of_cores(_config(InstanceGroup(kind=CPU, count=1))) == cores()


def test_a_quota_of_the_container_counts(tmp_path: Path) -> None:
    quota, allowed = tmp_path / "cpu.max", len(os.sched_getaffinity(0))
    assert cores(quota) == allowed
    quota.write_text("max 100000\n")
    assert cores(quota) == allowed
    quota.write_text("50000 100000\n")
    assert cores(quota) == 1


@pytest.mark.contract("I-08")
@pytest.mark.parametrize(
    ("group", "policy"),
    [
        (InstanceGroup(kind=CPU), "cpu"),
        (InstanceGroup(kind=GPU), "gpu_3"),
        (InstanceGroup(kind=MODEL), "model"),
        (InstanceGroup(kind=GPU, host_policy="mine"), "mine"),
    ],
)
def test_a_group_has_a_policy_by_its_kind(group: InstanceGroup, policy: str) -> None:
    assert group.policy(3) == policy
