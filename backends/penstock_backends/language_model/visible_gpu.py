"""The GPUs that an engine sees, set before its packages are imported."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Final

from penstock.backend import ModelLoadError

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


def see_only(devices: Sequence[int], environment: MutableMapping[str, str]) -> None:
    """Let the process see these GPUs alone, counted among those that it sees now.

    Raises `ModelLoadError` where it sees fewer.
    """
    visible = [name.strip() for name in environment.get(VISIBLE, "").split(",") if name]
    if visible and max(devices) >= len(visible):
        raise ModelLoadError(f"no GPU {max(devices)}: {VISIBLE} names {len(visible)}")
    names = [visible[device] if visible else str(device) for device in devices]
    environment[VISIBLE] = ",".join(names)
