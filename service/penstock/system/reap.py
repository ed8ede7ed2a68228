"""Kills all processes that a model has started; also the helper process behind `Reaper`.

The helper reads process groups until its input ends, then kills those that are left. A group is
added by `+NUMBER` and removed by `-NUMBER`, as an argument or a line; `+PATH` adds a folder to be
removed with its contents, `=MARK` the mark of processes that may have left their group. Run by
path; it imports as little as possible, since it lives as long as the server.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

VARIABLE = "PENSTOCK_MODEL_PROCESS"
"""Environment variable with a mark, inherited by all processes that a model process starts."""

_TRACKER = b"from multiprocessing.resource_tracker import main"

_LOOKS, _PAUSE = 100, 0.001
"""Retries, and seconds between them, while a process is in the middle of `exec`."""


def kill_group(group: int) -> None:
    """Kill every process of a group; the caller, if it is one of them, last.

    Python's resource tracker is left alive: it exits once the others have, and then removes the
    shared memory that they had no time to remove.
    """
    own = os.getpid()
    if _exists(group) and not _pids():
        _kill_blindly(group)
        return
    killed = {own}
    while new := _members(group) - killed:  # children started meanwhile are found the next time
        for pid in new:
            _kill(pid)
        killed |= new
    if os.getpgrp() == group:
        _kill(own)


def _kill_blindly(group: int) -> None:
    """Kill a group where processes cannot be listed, its resource tracker included."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def kill_marked(mark: str) -> None:
    """Kill every process whose mark has this prefix, also those that left their group.

    Where processes cannot be listed, as on macOS, they are not found.
    """
    killed = {os.getpid()}
    while new := _marked(f"\0{VARIABLE}={mark}".encode()) - killed:
        for pid in new:
            _kill(pid)
        killed |= new


def _marked(text: bytes) -> set[int]:
    """The processes with this text in their environment, without resource trackers."""
    return {pid for pid in _pids() if text in _environment(pid) and not _is_tracker(pid)}


def _environment(pid: int) -> bytes:
    """The environment of a process; empty if it has ended or belongs to another user."""
    with suppress(OSError):
        for _ in range(_LOOKS):
            if found := _contents(pid, "environ"):
                return b"\0" + found
            begins = _begins(pid)
            time.sleep(_PAUSE)
            if not begins:
                return b"\0" + _contents(pid, "environ")  # it may have begun meanwhile
    return b""


def _begins(pid: int) -> bool:
    """Whether it is in the middle of `exec`, and has no environment yet.

    Raises `OSError` for kernel threads and for processes that have ended.
    """
    return bool(os.readlink(f"/proc/{pid}/exe")) and not _contents(pid, "cmdline")


def _contents(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []  # not Linux, or a container without /proc


def _members(group: int) -> set[int]:
    """The processes of a group, without resource trackers."""
    if not _exists(group):
        return set()  # as nearly always, since a model process kills its own children
    return {pid for pid in _pids() if _group_of(pid) == group and not _is_tracker(pid)}


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _is_tracker(pid: int) -> bool:
    try:
        return _TRACKER in _contents(pid, "cmdline")
    except OSError:
        return False


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def reap(lines: list[str]) -> None:
    """Kill and remove what is left after these lines."""
    left: set[str] = set()
    marks: set[str] = set()
    changes = {"+": left.add, "-": left.discard, "=": marks.add}
    for line in lines:
        changes[line[0]](line[1:])
    folders = {name for name in left if name.startswith("/")}
    for group in left - folders:
        kill_group(int(group))
    for mark in marks:
        kill_marked(mark)
    if folders:
        from shutil import rmtree

        for folder in folders:
            rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    reap([*sys.argv[1:], *sys.stdin.read().splitlines()])
