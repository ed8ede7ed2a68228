"""How a backend in a model process is: its health and its numbers, told to the server."""

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
"""Seconds between looks at the backend."""


class HealthMonitor:
    """Asks a backend that may raise anything."""

    def __init__(self, backend: Backend, send: Send) -> None:
        self._backend = backend
        self._send = send

    async def watch(self) -> None:
        """Tell the backend's numbers when they change; returns when it cannot go on."""
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
        except Exception:  # a backend that cannot even say so is not healthy
            logger.exception("asking the backend for its health failed")
            return False

    def _numbers(self) -> dict[str, float] | None:
        """The backend's numbers; `None` when it fails, after which it is not asked again."""
        try:
            numbers: Mapping[str, Any] = self._backend.metrics()  # numpy's, as it may be
            return {name: float(value) for name, value in numbers.items()}
        except Exception:  # a backend may raise anything
            logger.exception("asking the backend for its numbers failed")
            return None
