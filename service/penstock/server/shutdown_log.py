"""`ShutdownLog`: logs the progress of a graceful shutdown (W-06, W-07)."""

from __future__ import annotations

import asyncio
import logging

from penstock.core.exit_deadline import ExitDeadline
from penstock.models.loading.lifecycle import ModelLifecycle

logger = logging.getLogger(__name__)

_DETAILS_EVERY = 3
"""Reports, one a second, after which a line with what is in flight is repeated."""


class ShutdownLog:
    """Logs every second what the shutdown waits for, from its creation to `close`.

    First these are requests in flight, in the models and at the frontends, then models to unload.
    """

    def __init__(self, lifecycle: ModelLifecycle, deadline: ExitDeadline) -> None:
        self._lifecycle = lifecycle
        self._deadline = deadline
        self._frontends_open = True
        self._unloading = False
        self._reports = 0
        self._details = ""
        logger.info("Waiting for in-flight requests to complete.")
        self._report_in_flight()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(1, self._tick)

    def frontends_closed(self) -> None:
        """Report models only from now on: no frontend has requests any more."""
        self._frontends_open = False
        self._begin_unloading()

    def report(self) -> None:
        """Log what the shutdown waits for now."""
        if self._unloading:
            self._report_unloading()
        else:
            self._report_in_flight()
            self._begin_unloading()

    def close(self) -> None:
        """Log no more."""
        self._timer.cancel()

    def _tick(self) -> None:
        self.report()
        self._timer = self._loop.call_later(1, self._tick)

    def _report_in_flight(self) -> None:
        busy = self._lifecycle.in_flight()
        text = "Timeout %d: Found %d model versions that have in-flight inferences"
        logger.info(text, self._seconds(), len(busy))
        models = [f"model '{name}' version {v}: {number}" for (name, v), number in busy.items()]
        details = ", ".join([*models, *self._deadline.waiting()])
        if details and (details != self._details or self._reports % _DETAILS_EVERY == 0):
            logger.info("In flight: %s", details)
        self._details = details
        self._reports += 1

    def _begin_unloading(self) -> None:
        """Go on to the unloads, once nothing is in flight."""
        if not self._frontends_open and not self._lifecycle.in_flight():
            logger.info("All models are stopped, unloading models")
            self._unloading = True
            self._report_unloading()

    def _report_unloading(self) -> None:
        text = "Timeout %d: Found %d live models and %d in-flight non-inference requests"
        logger.info(text, self._seconds(), self._lifecycle.live(), self._lifecycle.loads())

    def _seconds(self) -> int:
        return round(self._deadline.left())
