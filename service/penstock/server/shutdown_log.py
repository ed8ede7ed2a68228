"""`ShutdownLog`: logs the progress of a graceful shutdown (W-06, W-07)."""

from __future__ import annotations

import asyncio
import logging

from penstock.core.exit_deadline import ExitDeadline
from penstock.models.loading.lifecycle import ModelLifecycle

logger = logging.getLogger(__name__)


class ShutdownLog:
    """Logs what the shutdown waits for: first requests in flight, then models to unload."""

    def __init__(self, lifecycle: ModelLifecycle, deadline: ExitDeadline) -> None:
        self._lifecycle = lifecycle
        self._deadline = deadline
        self._unloading = False

    async def run(self) -> None:
        """Log every second, until cancelled."""
        logger.info("Waiting for in-flight requests to complete.")
        while True:
            self.report()
            await asyncio.sleep(1)

    def report(self) -> None:
        """Log what the shutdown waits for now."""
        seconds = round(self._deadline.left())
        if not self._unloading:
            busy = self._lifecycle.busy()
            text = "Timeout %d: Found %d model versions that have in-flight inferences"
            logger.info(text, seconds, busy)
            if busy:
                return
            logger.info("All models are stopped, unloading models")
            self._unloading = True
        text = "Timeout %d: Found %d live models and %d in-flight non-inference requests"
        logger.info(text, seconds, self._lifecycle.live(), self._lifecycle.loads())
