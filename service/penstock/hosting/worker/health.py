"""Health checks and metrics of the backend in a model process, sent to the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from penstock.core.backend import Backend, WithMetrics, WithReadiness
from penstock.core.log.log_throttle import log_fault
from penstock.hosting.link.messages import Kind
from penstock.hosting.link.response_sender import Send

logger = logging.getLogger(__name__)

_INTERVAL = 0.5
"""Seconds between health checks."""


class HealthMonitor:
    """Polls a backend, which may raise anything, for its health and metrics."""

    def __init__(self, backend: Backend, send: Send) -> None:
        self._engine = backend if isinstance(backend, WithMetrics) else WithMetrics()
        self._readiness = backend if isinstance(backend, WithReadiness) else WithReadiness()
        self._send = send
        self._failed = False
        self._reason = ""

    @property
    def unloads(self) -> bool:
        """Whether the model is to be unloaded where the backend is not healthy."""
        return self._readiness.unload_unhealthy

    async def watch(self) -> None:
        """Send the backend's metrics when they change; returns when it is not healthy."""
        shown: dict[str, float] | None = {}
        observed: dict[str, list[Any]] = {}
        while await self.healthy():
            numbers = None if shown is None else self._numbers()
            if numbers is not None:
                if numbers != shown:
                    self._send(Kind.METRICS, numbers)
                states = self._states()
                if states != observed:
                    self._send(Kind.HISTOGRAMS, states)
                    observed = states
            shown = numbers
            await asyncio.sleep(_INTERVAL)
        self._send(Kind.UNHEALTHY, "its engine reports that it is not healthy")

    async def ready(self) -> bool:
        """Whether the backend is healthy, and has no reason to get no requests; logs a new one."""
        reason = self._unready()
        if reason != self._reason:
            self._reason = reason
            if reason:
                logger.warning("not ready: %s", reason)
        return not reason and await self.healthy()

    def _unready(self) -> str:
        try:
            return self._readiness.unready()
        except Exception as error:  # a backend may raise anything
            log_fault(logger, error, "the readiness check of the backend failed")
            return "its readiness check failed"

    async def healthy(self) -> bool:
        """Whether the backend says that it can serve."""
        try:
            return await self._readiness.healthy()
        except Exception as error:  # a backend that fails to answer is not healthy
            log_fault(logger, error, "the health check of the backend failed")
            return False

    def _states(self) -> dict[str, list[Any]]:
        """The backend's histograms; none when it fails to tell."""
        try:
            return {name: one.state() for name, one in self._engine.histograms().items()}
        except Exception:  # a backend may raise anything
            if not self._failed:
                logger.exception("reading the histograms of the backend failed")
            self._failed = True
            return {}

    def _numbers(self) -> dict[str, float] | None:
        """The backend's metrics; `None` when it fails, after which it is not asked again."""
        try:
            numbers: Mapping[str, Any] = self._engine.metrics()  # numpy's, as it may be
            return {name: float(value) for name, value in numbers.items()}
        except Exception:  # a backend may raise anything
            logger.exception("reading the metrics of the backend failed")
            return None
