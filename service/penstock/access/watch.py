"""`PolicyWatch`: puts a changed policy file in force, and keeps the old policy over a wrong one."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.access.gate import AccessGate
from penstock.access.policy import AccessPolicy
from penstock.access.policy_file import read_policy
from penstock.core.errors import ConfigError

logger = logging.getLogger(__name__)

Signature = tuple[int, int, int, int] | None

SECONDS = 1.0
"""Between two looks at the file."""


class PolicyWatch:
    """Looks at the file that a path names at the moment, through all symbolic links: Kubernetes
    changes a mounted Secret by one of these. What it saw last is read once, right or wrong.
    """

    def __init__(self, path: Path, gate: AccessGate, seen: Signature) -> None:
        """`seen` is the signature of the file that the gate's policy was read from."""
        self._path = path
        self._gate = gate
        self._seen = seen

    @classmethod
    def open(cls, path: Path) -> PolicyWatch:
        """A watch of a file, whose policy is in force; raises `ConfigError` for a wrong one."""
        seen = signature(path)
        return cls(path, AccessGate(read_policy(path)), seen)

    @property
    def gate(self) -> AccessGate:
        return self._gate

    async def look(self) -> None:
        """Take up the file if it has changed."""
        await asyncio.to_thread(self._look)

    def _look(self) -> None:
        now = signature(self._path)
        if now == self._seen:
            return
        self._seen = now
        try:
            policy = read_policy(self._path)
        except ConfigError as error:
            self._gate.reload_failures += 1
            logger.error("%s; the policy before it stays in force", error)
        else:
            self._put_in_force(policy)

    def _put_in_force(self, policy: AccessPolicy) -> None:
        self._gate.policy = policy
        logger.info("the access policy '%s' has changed, and is in force", self._path)

    @asynccontextmanager
    async def running(self, seconds: float = SECONDS) -> AsyncIterator[None]:
        """Look at the file at this interval while the context is open."""
        task = asyncio.create_task(self._run(seconds))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.look()
            except Exception:  # a bug must be logged, and must not end the watch
                logger.exception("looking at the access policy failed")


def signature(path: Path) -> Signature:
    """What tells one state of a file from another; `None` where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
