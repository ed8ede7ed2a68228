"""Health checks and metrics of the backend in a model process, sent to the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from penstock.core.backend import Backend
from penstock.hosting.link.messages import Kind
from penstock.hosting.link.response_sender import Send

logger = logging.getLogger(__name__)

_INTERVAL = 0.5
"""Seconds between health checks."""


class HealthMonitor:
    """Polls a backend, which may raise anything, for its health and metrics."""

    def __init__(self, backend: Backend, send: Send) -> None:
        self._backend = backend
        self._send = send

    async def watch(self) -> None:
        """Send the backend's metrics when they change; returns when it is not healthy."""
        shown: dict[str, float] | None = {}
        while await self.healthy():
            numbers = None if shown is None else self._numbers()
            if numbers is not None and numbers != shown:
                self._send(Kind.METRICS, numbers)
            shown = numbers
            await asyncio.sleep(_INTERVAL)
        self._send(Kind.UNHEALTHY, "its engine reports that it is not healthy")

    async def healthy(self) -> bool:
        """Whether the backend says that it can serve."""
        try:
            return await self._backend.healthy()
        except Exception:  # a backend that fails to answer is not healthy
            logger.exception("the health check of the backend failed")
            return False

    def _numbers(self) -> dict[str, float] | None:
        """The backend's metrics; `None` when it fails, after which it is not asked again."""
        try:
            numbers: Mapping[str, Any] = self._backend.metrics()  # numpy's, as it may be
            return {name: float(value) for name, value in numbers.items()}
        except Exception:  # a backend may raise anything
            logger.exception("reading the metrics of the backend failed")
            return None
