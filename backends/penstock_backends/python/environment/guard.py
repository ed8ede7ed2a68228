"""Guard process that terminates what one-shot processes leave behind, even if the server dies."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.system import reap
from penstock.system.model_variables import passed_on


class Guard:
    """A process of the program `reap`, which kills once the pipe to it is closed.

    The pipe is closed by `close`, or because the server ended. Processes are found by their group
    (`watch`) and by `environment`, which they pass on to those that they start.
    """

    def __init__(self, process: asyncio.subprocess.Process, mark: str) -> None:
        self._process = process
        self.environment = {reap.VARIABLE: mark}

    def watch(self, group: int) -> None:
        """Kill also the processes of this group, which may have changed their environment."""
        self._send(f"+{group}\n")

    def forget(self, group: int) -> None:
        """The group has ended; its number may be used again by others."""
        self._send(f"-{group}\n")

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())

    async def close(self) -> None:
        """Kill the processes that are left, and wait until that is done."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


@asynccontextmanager
async def open_guard() -> AsyncIterator[Guard]:
    """A guard over the processes started within; on exit all of them have been killed."""
    mark = f"{secrets.token_hex(8)}."
    command = sys.executable, "-I", "-S", reap.__file__, f"={mark}"
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        env=passed_on(os.environ),
        start_new_session=True,
    )
    guard = Guard(process, mark)
    try:
        yield guard
    finally:
        await guard.close()
