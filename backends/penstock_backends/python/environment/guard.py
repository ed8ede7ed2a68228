"""Ends what short-lived processes leave behind, also when the server is killed meanwhile."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.system import reap


class Guard:
    """The process `reap`, which kills when the server has closed the pipe to it, or has ended.

    `environment` marks what is started with it, and all that this starts in turn.
    """

    def __init__(self, process: asyncio.subprocess.Process, mark: str) -> None:
        self._process = process
        self.environment = {reap.VARIABLE: mark}

    def watch(self, group: int) -> None:
        """Kill also those of the group that have left their environment behind."""
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """The group has ended; its number may be used again by others."""
        self._tell(f"-{group}\n")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())

    async def end(self) -> None:
        """Kill what is left."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


@asynccontextmanager
async def guarding() -> AsyncIterator[Guard]:
    """A guard over what is started within; all of it has been killed afterwards."""
    mark = f"{secrets.token_hex(8)}."
    command = sys.executable, "-I", "-S", reap.__file__, f"={mark}"
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, start_new_session=True
    )
    guard = Guard(process, mark)
    try:
        yield guard
    finally:
        await guard.end()
