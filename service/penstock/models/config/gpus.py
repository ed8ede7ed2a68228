"""GPUs: those that are visible to the server, and those that a model is on."""

from __future__ import annotations

import os
from itertools import takewhile
from pathlib import Path

from penstock.core.config import InstanceKind, ModelConfig

_DRIVER = Path("/proc/driver/nvidia/gpus")


def visible_gpus(driver: Path = _DRIVER, environment: dict[str, str] | None = None) -> list[int]:
    """The CUDA ordinals of the visible GPUs; none without a driver.

    `CUDA_VISIBLE_DEVICES` limits them as in CUDA: by index, or by id of a GPU or MIG instance, up
    to the first that does not exist.
    """
    variables = os.environ if environment is None else environment
    present = len(list(driver.iterdir())) if driver.is_dir() else 0
    chosen = variables.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return list(range(present))
    names = (name.strip() for name in chosen.split(","))
    allowed = list(takewhile(lambda name: _exists(name, present), names))
    return list(range(min(present, len(allowed))))


def only_gpu(config: ModelConfig) -> int | None:
    """The GPU that all instances of a complete configuration are on, if there is one."""
    gpus: set[int | None] = set()
    for group in config.instance_group:
        gpus |= set(group.gpus) if group.kind is InstanceKind.KIND_GPU else {None}
    return gpus.pop() if len(gpus) == 1 else None


def _exists(name: str, present: int) -> bool:
    """Whether a device of that name may exist; ids cannot be verified without CUDA."""
    return name.startswith(("GPU-", "MIG-")) or (name.isdecimal() and int(name) < present)
