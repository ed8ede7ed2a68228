"""Scrapes: the metrics page in the form that a client asks for, rendered in slices.

Metrics are rendered on the event loop, which owns them, for about a millisecond at a time; other
work has its turn in between. A thread would hold the GIL for five.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from penstock.core.turns import Ration
from penstock.metrics import exposition
from penstock.metrics.exposition import Family
from penstock.telemetry.openmetrics import CONTENT_TYPE, END, OpenMetricsWriter, prefers_openmetrics
from penstock.telemetry.user_metrics import UserMetrics

_TEXT = "text/plain; charset=utf-8"
_SLICE = 0.001
"""Seconds of rendering after which others have their turn."""
_AT_ONCE = 5
"""Scrapes that begin in one turn of the event loop."""


class Scraped(NamedTuple):
    """A page in bytes, and its content type."""

    body: bytes
    content_type: str


class Scraper:
    """Answers scrapes with the current `families`, and with the metrics of `users` behind them."""

    def __init__(
        self, families: Callable[[], Iterable[Family]], users: UserMetrics | None = None
    ) -> None:
        self._families = families
        self._users = users
        self._writer = OpenMetricsWriter()
        self._ration = Ration(_AT_ONCE)

    async def scrape(self, accept: str = "") -> Scraped:
        """The page for a client with this `Accept` header."""
        if (turn := self._ration.take()) is not None:
            await turn
        open_metrics = prefers_openmetrics(accept)
        names: set[str] = set()
        families = _noting(names, self._families())
        if open_metrics:
            parts = await in_slices(self._writer.pieces(families))
        else:
            parts = await in_slices(exposition.pieces(families))
        if self._users is not None:
            parts.append((await self._users.text(names, open_metrics=open_metrics)).encode())
        if open_metrics:
            parts.append(END.encode())
        return Scraped(b"".join(parts), CONTENT_TYPE if open_metrics else _TEXT)


def _noting(names: set[str], families: Iterable[Family]) -> Iterator[Family]:
    for family in families:
        names.add(family.name)
        yield family


async def in_slices(
    pieces: Iterable[str],
    clock: Callable[[], float] = time.perf_counter,
    seconds: float = _SLICE,
) -> list[bytes]:
    """The pieces, encoded; the event loop has a turn whenever `seconds` have passed."""
    parts: list[bytes] = []
    begun: list[str] = []
    end = clock() + seconds
    for piece in pieces:
        begun.append(piece)
        if clock() >= end:
            parts.append("".join(begun).encode())
            begun.clear()
            await asyncio.sleep(0)
            end = clock() + seconds
    parts.append("".join(begun).encode())
    return parts
