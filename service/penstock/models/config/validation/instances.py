"""Rules about instance groups, after their kinds are settled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig


def instance_problems(config: ModelConfig, gpus: Sequence[int]) -> Iterator[str]:
    """Groups name the devices that their kind needs, and only devices that can be used."""
    if config.ensemble_scheduling is not None:
        return
    if not config.instance_group:
        yield f"must specify one or more 'instance group's for {config.name}"
    for group in config.instance_group:
        for problem in _group_problems(group, config.platform, gpus):
            yield f"instance group {group.name} of model {config.name} {problem}"


def _group_problems(group: InstanceGroup, platform: str, gpus: Sequence[int]) -> Iterator[str]:
    if group.kind is InstanceKind.KIND_GPU:
        yield from _device_problems(group, gpus)
    elif group.kind is InstanceKind.KIND_AUTO:
        yield "has unexpected kind KIND_AUTO"
    elif group.gpus:
        yield f"has kind {group.kind} but specifies one or more GPUs"
    if group.profile and platform != "tensorrt_plan":
        yield (
            f"and platform {platform}specifies profile field "
            "which is only supported for TensorRT models"
        )


def _device_problems(group: InstanceGroup, gpus: Sequence[int]) -> Iterator[str]:
    if not group.gpus:
        yield f"has kind KIND_GPU but {'specifies no GPUs' if gpus else 'no GPUs are available'}"
    for device in group.gpus:
        if device not in gpus:
            yield (
                f"specifies invalid or unsupported gpu id {device}. GPUs with at least the "
                "minimum required CUDA compute compatibility of 6.000000 are: "
                f"{', '.join(map(str, gpus))}"
            )
