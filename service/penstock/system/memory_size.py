"""The memory that this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def memory_size(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """Bytes: what the control groups grant, at most what the machine has.

    `groups` is where these are mounted, `own` names those of the process.
    """
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in _limits(groups, own):
        try:
            most = min(most, int(file.read_text()))
        except (OSError, ValueError):  # no such file, or "max" for no limit
            continue
    return most


def _limits(groups: Path, own: Path) -> Iterator[Path]:
    """Files of limits: those of the groups that the process is in, and of all around them."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = ["0::/"]
    for line in lines:
        _, kinds, path = line.split(":", 2)
        root, name = groups, "memory.max"
        if kinds:
            root, name = groups / "memory", "memory.limit_in_bytes"
        if not kinds or "memory" in kinds.split(","):
            inner = Path(path.lstrip("/"))
            for group in (inner, *inner.parents):
                yield root / group / name
