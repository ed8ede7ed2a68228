"""What the log tells while a server stops (contract W-06 and W-07)."""

from __future__ import annotations

import asyncio
import logging

from penstock.core.exit_deadline import ExitDeadline
from penstock.models.loading.lifecycle import ModelLifecycle

logger = logging.getLogger(__name__)


class ShutdownLog:
    """Tells what is waited for: first running inferences, then the models themselves."""

    def __init__(self, lifecycle: ModelLifecycle, deadline: ExitDeadline) -> None:
        self._lifecycle = lifecycle
        self._deadline = deadline
        self._unloading = False

    async def run(self) -> None:
        """Tell every second, until cancelled."""
        logger.info("Waiting for in-flight requests to complete.")
        while True:
            self.tell()
            await asyncio.sleep(1)

    def tell(self) -> None:
        """Tell what is waited for now."""
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
