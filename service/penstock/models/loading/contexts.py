"""The instances that a configuration asks for, each with what it is told about itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.core.backend import InstanceContext
from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig
from penstock.core.placement import Placement


def instance_contexts(
    config: ModelConfig,
    version: int,
    version_path: Path,
    settings: Mapping[str, str],
    placements: Mapping[str, Placement],
) -> Iterator[tuple[InstanceGroup, InstanceContext]]:
    """Every instance with its group; `placements` are those of host policies, by name."""
    for group in config.instance_group:
        for device in group.gpus or (0,):
            policy = group.policy(device)
            for number in range(group.count):
                suffix = f"_gpu{device}" if group.kind is InstanceKind.KIND_GPU else ""
                yield (
                    group,
                    InstanceContext(
                        name=f"{group.name}_{number}{suffix}",
                        config=config,
                        version=version,
                        version_path=version_path,
                        run=_no_thread,
                        kind=group.kind.value,
                        device_id=device,
                        settings=settings,
                        passive=group.passive,
                        host_policy=policy,
                        placement=placements.get(policy, Placement()),
                        profiles=group.profile,
                        secondary_devices=tuple(
                            (d.kind.value, d.device_id) for d in group.secondary_devices
                        ),
                    ),
                )


async def _no_thread(function: Callable[..., Any], *args: Any) -> Awaitable[Any]:
    raise AssertionError("the instance gives its context a thread before anybody runs on it")
