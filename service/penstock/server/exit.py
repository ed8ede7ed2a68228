"""`ServerExit`: the end of a server, from the refusal of new work to its last model."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from penstock.core.exit_deadline import ExitDeadline
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.server.shutdown_log import ShutdownLog

logger = logging.getLogger(__name__)


class ServerExit:
    """How far the end has come: `begun` with the refusal of new work, `all_refused` after it.

    In between, requests that continue a sequence are admitted (S-22). From the beginning on, the
    log shows what the exit waits for.
    """

    def __init__(self, lifecycle: ModelLifecycle) -> None:
        self.begun = False
        self.all_refused = asyncio.Event()
        self._lifecycle = lifecycle
        self._unfinished: set[str] = set()
        self._log: ShutdownLog | None = None

    def admits(self, model: str) -> bool:
        """Whether the model has sequences in progress, which may go on."""
        return model in self._unfinished

    def begin(self, deadline: ExitDeadline) -> None:
        """Refuse new work, except requests that continue a sequence."""
        self.begun = True
        self._opened_log(deadline)
        self._unfinished = self._lifecycle.with_sequences()
        if self._unfinished:
            logger.info("Waiting for sequences of %s to end.", ", ".join(sorted(self._unfinished)))
        self._lifecycle.catalog.changes.notify()

    async def finish_sequences(self, deadline: ExitDeadline) -> None:
        """Wait for sequences in progress to end, until the deadline; then refuse all work."""
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline.left()):
                await self._lifecycle.wait_for_sequences()
        self._refuse_all()

    async def complete(self, deadline: ExitDeadline) -> bool:
        """Refuse all work, complete what is in flight until the deadline, unload all models.

        Returns false if the deadline expired; threads may then still be running.
        """
        self._refuse_all()
        log = self._opened_log(deadline)
        log.frontends_closed()
        try:
            async with asyncio.timeout(deadline.left()):
                await self._lifecycle.close()
            log.report()
        except TimeoutError:
            log.close()  # no report after the next line
            deadline.cut(sum(self._lifecycle.in_flight().values()))
            logger.error("Exit timeout expired. Exiting immediately.")
            await self._lifecycle.abort()
            return False
        finally:
            log.close()
        return True

    def _refuse_all(self) -> None:
        self.begun = True
        self._unfinished = set()
        self.all_refused.set()
        self._lifecycle.catalog.changes.notify()

    def _opened_log(self, deadline: ExitDeadline) -> ShutdownLog:
        if self._log is None:
            self._log = ShutdownLog(self._lifecycle, deadline)
        return self._log
