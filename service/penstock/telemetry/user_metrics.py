"""Metrics of users' own collectors, asked on a thread, since they may do anything."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from prometheus_client import exposition
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics

from penstock.metrics.collectors import REGISTRY, UserRegistry
from penstock.telemetry.openmetrics import END, Collected

logger = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds that all collectors together may take for one scrape."""


class UserMetrics:
    """The text of users' metrics, for either form of the page.

    Collectors that take too long are left out, and not asked again before they have returned.
    """

    def __init__(
        self,
        reserved: Callable[[str], bool],
        registry: UserRegistry = REGISTRY,
        patience: float = PATIENCE,
    ) -> None:
        self._reserved = reserved
        self._registry = registry
        self._patience = patience
        self._asking = False
        self._told: set[str] = set()

    async def text(self, taken: set[str], *, open_metrics: bool) -> str:
        """The metrics whose names are not `taken`; these are added to it."""
        if self._registry.empty or self._asking:
            return ""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()

        def ask() -> None:
            text = self._collect(taken, open_metrics)
            self._asking = False
            if not loop.is_closed():
                loop.call_soon_threadsafe(_set, answer, text)

        self._asking = True
        threading.Thread(target=ask, name="user-metrics", daemon=True).start()
        await asyncio.wait([answer], timeout=self._patience)
        if answer.done():
            return answer.result()
        logger.error(
            "collectors of metrics take more than %g s and are left out until they return",
            self._patience,
        )
        return ""

    def _collect(self, taken: set[str], open_metrics: bool) -> str:
        texts: list[str] = []
        refused: dict[str, str] = {}
        for metric in self._registry.collect():
            name = metric.name
            if self._reserved(name) or taken & {name, f"{name}_total"}:
                refused[name] = "another metric has its name"
                continue
            taken.add(name)
            try:
                texts.append(_text(metric, open_metrics))
            except Exception as error:  # of values and labels that are none
                refused[name] = repr(error)
        self._tell(refused)
        return "".join(texts)

    def _tell(self, refused: dict[str, str]) -> None:
        """Log each name once for as long as it is refused."""
        for name in refused.keys() - self._told:
            logger.error("metrics '%s' of a user are left out: %s", name, refused[name])
        self._told = set(refused)


def _text(metric: Metric, open_metrics: bool) -> str:
    if open_metrics:
        text: bytes = openmetrics.generate_latest(Collected(metric))
        return text.decode().removesuffix(END)
    return exposition.generate_latest(Collected(metric)).decode()


def _set(answer: asyncio.Future[str], text: str) -> None:
    if not answer.done():
        answer.set_result(text)
