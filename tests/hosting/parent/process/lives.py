"""What model processes there are, and how they are ended from outside."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from hosting.puppets import Puppets
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


async def settled(puppets: Puppets, instance: ProcessInstance) -> None:
    """Give the process two turns to do what it is going to do."""
    for _ in range(2):
        await puppets.report(instance, "made")
        await asyncio.sleep(0.02)
