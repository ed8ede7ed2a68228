"""Killing all that a model has started; and the process behind `Reaper`, which does so at the end.

That process reads groups until its input ends, then kills what is left.
A group comes as `+NUMBER` and goes as `-NUMBER`, as an argument or a line; a folder, which is
removed with all that it holds, as `+PATH`; the mark of what has left its group as `=MARK`. Run by
path; it imports as little as possible, since it lives as long as the server.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

VARIABLE = "PENSTOCK_MODEL_PROCESS"
"""Environment variable whose value, a mark, passes on to all that a model process starts."""

_TRACKER = b"from multiprocessing.resource_tracker import main"

_LOOKS, _PAUSE = 100, 0.001
"""How often, and seconds after which, one looks again at what is becoming another program."""


def kill_group(group: int) -> None:
    """Kill every process of a group; the caller, if it is one of them, comes last.

    Python's resource tracker is left alive: it ends by itself once the others have, and then
    removes the shared memory that they had no time to remove.
    """
    own = os.getpid()
    if _exists(group) and not _pids():
        _kill_blindly(group)
        return
    killed = {own}
    while new := _members(group) - killed:  # what they start meanwhile is found the next time
        for pid in new:
            _kill(pid)
        killed |= new
    if os.getpgrp() == group:
        _kill(own)


def _kill_blindly(group: int) -> None:
    """Kill a group whose processes cannot be told apart, their resource tracker among them."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def kill_marked(mark: str) -> None:
    """Kill every process whose mark begins so: those which have left the group of their model.

    Where processes cannot be listed, as on macOS, those are not found.
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
    """Empty for processes that have ended, and for those of others."""
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
    """Whether it is becoming another program in this moment, and has no environment as yet.

    Raises `OSError` for what is none: what runs in the kernel, and what has ended.
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
        return set()  # as nearly always, since a model process takes along what it has started
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


def _reap(lines: list[str]) -> None:
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
    _reap([*sys.argv[1:], *sys.stdin.read().splitlines()])
