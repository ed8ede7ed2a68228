"""A reserve of file descriptors: connections may not take the last ones of the process."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from math import inf

logger = logging.getLogger(__name__)

_RESERVE = 64
_QUIET = 60.0
"""Seconds between two lines of the log about the same."""


class DescriptorReserve:
    """Keeps some descriptors for files, models and the processes of instances.

    Without it, a client that opens many connections would also prevent models from being loaded.
    """

    def __init__(self) -> None:
        self._refused = 0
        self._logged = -inf

    def admits(self, transport: asyncio.BaseTransport) -> bool:
        """Whether a new connection may stay. The system hands out the lowest free number."""
        found = transport.get_extra_info("socket")
        if found is None or found.fileno() < spare_from():
            return True
        self._refused += 1
        self._log(time.monotonic())
        return False

    def _log(self, now: float) -> None:
        if now - self._logged >= _QUIET:
            self._logged = now
            logger.warning(
                "Connections are refused, %d so far: of %d file descriptors the last are reserved",
                self._refused,
                resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            )


def spare_from() -> float:
    """The first number of the reserve: a quarter of all, 64 at most."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return inf if limit == resource.RLIM_INFINITY else limit - min(_RESERVE, limit // 4)
