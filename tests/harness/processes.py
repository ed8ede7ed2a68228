"""Processes as `/proc` shows them: any of them, and of their threads, may end meanwhile."""

from __future__ import annotations

from pathlib import Path


def read_of(pid: int, name: str) -> bytes:
    """A file below a process's folder, such as `maps`; nothing when the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def command_of(pid: int) -> bytes:
    """The command line of a process; empty when it has ended."""
    return read_of(pid, "cmdline")


def thread_files(pid: int, name: str) -> list[str]:
    """A file of each thread of a process; that of one that has ended is left out."""
    paths = Path(f"/proc/{pid}/task").glob(f"*/{name}")
    found = (read_of(pid, f"task/{path.parent.name}/{name}").decode() for path in paths)
    return [text for text in found if text]


def processes_below(root: int) -> list[int]:
    """The children of a process, theirs, and so on."""
    children = [int(pid) for text in thread_files(root, "children") for pid in text.split()]
    return [pid for child in children for pid in (child, *processes_below(child))]
