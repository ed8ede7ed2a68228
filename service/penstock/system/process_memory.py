"""What processes take of the machine's memory, as the kernel counts it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")
_KIB = 1024


def with_descendants(pid: int, proc: Path = _PROC) -> set[int]:
    """A process and all that it has started, and these have started; blocks for a moment."""
    found: set[int] = set()
    todo = [pid]
    while todo:
        one = todo.pop()
        if one in found:
            continue
        found.add(one)
        try:
            for file in (proc / str(one) / "task").glob("*/children"):
                todo += map(int, file.read_text().split())
        except OSError:  # it has ended, or the kernel does not tell
            continue
    return found


def proportional_bytes(pids: Iterable[int], proc: Path = _PROC) -> int | None:
    """Bytes of processes, of pages that several share their part; `None` if none can be read.

    Shared memory is taken to be shared with the server alone, and counted whole. Blocks for some
    milliseconds for each gigabyte.
    """
    found = [size for size in (_proportional(pid, proc) for pid in pids) if size]
    return sum(found) if found else None


def _proportional(pid: int, proc: Path) -> int:
    """Bytes of one process; 0 where they cannot be read."""
    try:
        lines = (proc / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    fields = (line.split() for line in lines)
    sizes = {words[0]: int(words[1]) for words in fields if words[-1] == "kB"}
    return (sizes.get("Pss:", 0) + sizes.get("Pss_Shmem:", 0)) * _KIB
