"""What model processes there are, and how they are ended from outside."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from penstock.hosting.parent.process import ProcessInstance


def pid_of(instance: ProcessInstance) -> int:
    assert instance.pid is not None
    return instance.pid


def kill(instance: ProcessInstance) -> None:
    os.kill(pid_of(instance), signal.SIGKILL)


def children() -> list[int]:
    """Model processes of this process, also those that have exited and were not waited for."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in found}
    return [pid for pid, command in commands.items() if not command or b"bootstrap.py" in command]
