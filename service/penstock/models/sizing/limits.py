"""`budget_limits`: the bytes of each device that a memory budget grants, from bytes and shares."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.errors import ConfigError
from penstock.models.sizing.budget import TOGETHER
from penstock.models.sizing.estimate import HOST

_EACH_GPU = "gpu"


def budget_limits(
    budget: Mapping[str, int | float], host: int, gpus: Mapping[int, int]
) -> int | dict[str, int]:
    """Bytes by device, or of all together where the budget is one number.

    `host` and `gpus` are the bytes that the devices have; 0 where that cannot be read. What is said
    of one GPU stands above what is said of each. Raises `ConfigError` for a GPU that is not there,
    and for a share of what is not known.
    """
    if TOGETHER in budget:
        return int(budget[TOGETHER])
    there = {HOST: host} | {f"gpu{number}": size for number, size in gpus.items()}
    wanted = {f"gpu{number}": budget[_EACH_GPU] for number in gpus if _EACH_GPU in budget}
    wanted |= {device: size for device, size in budget.items() if device != _EACH_GPU}
    return {device: _bytes(device, size, there) for device, size in wanted.items()}


def _bytes(device: str, size: int | float, there: Mapping[str, int]) -> int:
    if device not in there:
        raise ConfigError(f"--memory-budget: there is no {device}, but {', '.join(there)}")
    if isinstance(size, int):
        return size
    if not there[device]:
        raise ConfigError(
            f"--memory-budget: the memory of {device} cannot be read, so its budget must be bytes"
        )
    return int(size * there[device])
