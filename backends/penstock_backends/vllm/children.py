"""Child processes of an engine, tracked so that none outlives it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class ChildProcess(NamedTuple):
    """A process by pid and start time, which together are unique."""

    pid: int
    started: int


def descendants(of: int) -> set[ChildProcess]:
    """Every living descendant of the process `of`, except Python's own resource tracker."""
    below: dict[int, list[ChildProcess]] = {}
    for entry in Path("/proc").iterdir():
        stat = _stat(int(entry.name)) if entry.name.isdigit() else None
        if stat is not None:
            below.setdefault(stat[0], []).append(stat[1])
    found: set[ChildProcess] = set()
    new = below.get(of, [])
    while new:
        found.update(new)
        new = [child for process in new for child in below.get(process.pid, [])]
    return {process for process in found if not _is_tracker(process.pid)}


def kill_leftovers(processes: Iterable[ChildProcess], grace: float = 2.0) -> int:
    """Wait up to `grace` seconds for them to end, then kill; returns how many were killed."""
    deadline = time.monotonic() + grace
    left = _living(processes)
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = _living(left)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    return len(left)


def _is_tracker(pid: int) -> bool:
    """Whether it is the resource tracker, which `multiprocessing` starts once and keeps."""
    try:
        return b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _living(processes: Iterable[ChildProcess]) -> list[ChildProcess]:
    stats = ((process, _stat(process.pid)) for process in processes)
    return [process for process, stat in stats if stat is not None and stat[1] == process]


def _stat(pid: int) -> tuple[int, ChildProcess] | None:
    """Parent and identity of a process; `None` if it has ended, zombies included."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name in parentheses may contain spaces
    state, parent, started = fields[0], int(fields[1]), int(fields[19])
    return None if state in ("Z", "X") else (parent, ChildProcess(pid, started))
