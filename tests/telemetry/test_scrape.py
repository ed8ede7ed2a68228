"""Scrapes: the form of the page, and the slices in which it is rendered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count, pairwise

import pytest
from prometheus_client import Gauge

from penstock.metrics.collectors import UserRegistry
from penstock.metrics.exposition import Family, MetricKind, Series
from penstock.telemetry.scrape import Scraper, in_slices
from penstock.telemetry.user_metrics import UserMetrics


def families() -> list[Family]:
    return [Family("g", "a gauge", MetricKind.GAUGE, [Series((), 1.5)])]


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain"])
async def test_text_is_the_default(accept: str) -> None:
    page = await Scraper(families).scrape(accept)
    assert page == (b"# HELP g a gauge\n# TYPE g gauge\ng 1.5\n", "text/plain; charset=utf-8")


async def test_openmetrics_is_for_who_accepts_it() -> None:
    page = await Scraper(families).scrape("application/openmetrics-text")
    assert page.body == b"# HELP g a gauge\n# TYPE g gauge\ng 1.5\n# EOF\n"
    assert page.content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
async def test_metrics_of_users_come_last_and_not_twice(accept: str) -> None:
    registry = UserRegistry()
    Gauge("g", "the same name", registry=registry)
    Gauge("u", "a user's", registry=registry).set(2)
    users = UserMetrics(lambda name: False, registry, 60.0)
    lines = (await Scraper(families, users).scrape(accept)).body.decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["g 1.5", "u 2.0"]
    assert (lines[-1] == "# EOF") is bool(accept)


async def test_others_have_a_turn_between_slices() -> None:
    """A clock that goes on by a second at each look makes a slice of each piece."""
    turns: list[int] = []

    def pieces() -> Iterator[str]:
        for n in range(3):
            asyncio.get_running_loop().call_soon(turns.append, n)
            assert turns == list(range(n))
            yield str(n)

    ticks = count()
    assert await in_slices(pieces(), lambda: next(ticks), 1.0) == [b"0", b"1", b"2", b""]


async def test_a_quick_page_is_one_slice() -> None:
    assert await in_slices(["a", "b"], lambda: 0.0) == [b"ab"]


async def test_many_scrapes_at_once_leave_the_loop_to_others() -> None:
    begun: list[None] = []

    def noted() -> list[Family]:
        begun.append(None)
        return families()

    scraper = Scraper(noted)
    scrapes = [asyncio.ensure_future(scraper.scrape()) for _ in range(40)]
    seen = [0]
    while len(begun) < 40:
        await asyncio.sleep(0)
        seen.append(len(begun))
    await asyncio.gather(*scrapes)
    assert max(after - before for before, after in pairwise(seen)) <= 5
