"""Which GPUs this machine offers to the server."""

from __future__ import annotations

import os
from itertools import takewhile
from pathlib import Path

_DRIVER = Path("/proc/driver/nvidia/gpus")


def visible_gpus(driver: Path = _DRIVER, environment: dict[str, str] | None = None) -> list[int]:
    """The ordinals that CUDA gives the GPUs it may use: none without a driver or by wish.

    `CUDA_VISIBLE_DEVICES` limits them as CUDA does: by number, or by the id of a GPU or of a MIG
    part, up to the first that does not exist. `TRITON_SERVER_CPU_ONLY` hides them all.
    """
    variables = os.environ if environment is None else environment
    if variables.get("TRITON_SERVER_CPU_ONLY"):
        return []
    present = len(list(driver.iterdir())) if driver.is_dir() else 0
    chosen = variables.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return list(range(present))
    names = (name.strip() for name in chosen.split(","))
    allowed = list(takewhile(lambda name: _exists(name, present), names))
    return list(range(min(present, len(allowed))))


def _exists(name: str, present: int) -> bool:
    """Whether CUDA may know a device by that name; ids cannot be looked up without it."""
    return name.startswith(("GPU-", "MIG-")) or (name.isdecimal() and int(name) < present)
