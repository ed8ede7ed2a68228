"""The memory that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def memory_size() -> int:
    """Bytes: what the control group grants, at most what the machine has."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in _LIMITS:
        try:
            return min(most, int(limit.read_text()))
        except (OSError, ValueError):  # no such file, or "max" for no limit
            continue
    return most
