"""The share of CPU cores that each instance of a model may use."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.core.config import InstanceKind, ModelConfig

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def cores(quota: Path = _QUOTA) -> int:
    """Cores that this thread may use: its affinity, less where a container has a quota."""
    allowed = len(os.sched_getaffinity(0))
    try:
        most, period = quota.read_text().split()
        return max(1, min(allowed, int(most) // int(period)))
    except (OSError, ValueError):  # no such file, or "max" for no quota
        return allowed


def sharers(config: ModelConfig, host_policy: str = "cpu") -> int:
    """Instances that compute on the cores of a host policy, at least 1.

    Those on GPUs and passive ones leave them alone.
    """
    groups = (
        group
        for group in config.instance_group
        if group.kind is not InstanceKind.KIND_GPU and not group.passive
    )
    return max(1, sum(max(1, g.count) for g in groups if g.policy(0) == host_policy))


def share_of_cores(config: ModelConfig, host_policy: str = "cpu") -> int:
    """Cores for each of them; to be called on the instance's own thread, which may be pinned."""
    return max(1, cores() // sharers(config, host_policy))
