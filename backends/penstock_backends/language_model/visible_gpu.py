"""The one GPU that an engine sees, set before its packages are imported."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

from penstock.backend import ModelLoadError

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


def see_only(device_id: int, environment: MutableMapping[str, str]) -> None:
    """Let the process see GPU `device_id` alone, counted among those that it sees now.

    Raises `ModelLoadError` where it sees fewer.
    """
    visible = [name for name in environment.get(VISIBLE, "").split(",") if name]
    if visible and device_id >= len(visible):
        raise ModelLoadError(f"no GPU {device_id}: {VISIBLE} names {len(visible)}")
    environment[VISIBLE] = visible[device_id].strip() if visible else str(device_id)
