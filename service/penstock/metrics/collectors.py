"""`UserRegistry`: where users' own collectors plug in, for both forms of the metrics page."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

logger = logging.getLogger(__name__)


class UserRegistry(CollectorRegistry):
    """A registry in which a broken collector costs its own metrics only, and a line in the log.

    Its methods may be called from any thread.
    """

    def __init__(self) -> None:
        super().__init__(auto_describe=False)
        self._collectors: list[Any] = []
        self._failing: set[int] = set()

    def register(self, collector: Any) -> None:
        """Add a collector; raises `ValueError` for a name that another one has."""
        super().register(collector)
        self._collectors.append(collector)

    def unregister(self, collector: Any) -> None:
        """Remove a collector; raises `KeyError` for one that was not added."""
        super().unregister(collector)
        self._collectors.remove(collector)
        self._failing.discard(id(collector))

    @property
    def empty(self) -> bool:
        """Whether it has no collectors."""
        return not self._collectors

    def collect(self) -> Iterable[Metric]:
        """What the collectors tell, without those that fail."""
        for collector in list(self._collectors):
            yield from self._metrics(collector)

    def _metrics(self, collector: Any) -> list[Metric]:
        try:
            found = list(collector.collect())
        except Exception:  # a collector may raise anything
            if id(collector) not in self._failing:
                self._failing.add(id(collector))
                logger.exception("a collector of metrics is left out while it fails: %r", collector)
            return []
        self._failing.discard(id(collector))
        return found


REGISTRY = UserRegistry()
"""The registry of this process; the metrics page shows that of the server's."""
