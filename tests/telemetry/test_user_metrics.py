"""Metrics of users' own collectors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric

from penstock.backend import metrics_registry
from penstock.metrics.collectors import REGISTRY, UserRegistry
from penstock.telemetry.metrics import OwnNames
from penstock.telemetry.user_metrics import UserMetrics


class _Collector:
    """A collector of whatever a test wants."""

    def __init__(self, *metrics: Metric, error: Exception | None = None) -> None:
        self.metrics = metrics
        self.error = error

    def collect(self) -> Iterable[Metric]:
        if self.error is not None:
            raise self.error
        return self.metrics


@pytest.fixture
def registry() -> UserRegistry:
    return UserRegistry()


def users(registry: UserRegistry, patience: float = 60.0) -> UserMetrics:
    return UserMetrics(OwnNames().__contains__, registry, patience)


async def shown(registry: UserRegistry, *taken: str, open_metrics: bool = False) -> str:
    return await users(registry).text(set(taken), open_metrics=open_metrics)


async def test_metrics_of_users_are_on_both_pages(registry: UserRegistry) -> None:
    Gauge("room_temperature", "in degrees", registry=registry).set(21.5)
    Counter("doors_opened", "as it says", ["door"], registry=registry).labels("front").inc()
    plain = await shown(registry)
    assert "# TYPE room_temperature gauge\nroom_temperature 21.5\n" in plain
    assert 'doors_opened_total{door="front"} 1.0\n' in plain
    text = await shown(registry, open_metrics=True)
    assert "# TYPE doors_opened counter\n" in text
    assert "EOF" not in text


async def test_nobody_is_asked_where_there_are_no_collectors(registry: UserRegistry) -> None:
    before = threading.active_count()
    assert await shown(registry) == ""
    assert threading.active_count() == before


async def test_a_broken_collector_costs_its_own_metrics_and_a_line(
    registry: UserRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    broken = _Collector(GaugeMetricFamily("late", "", 1), error=ZeroDivisionError())
    registry.register(broken)
    Gauge("whole", "", registry=registry).set(1)
    metrics = users(registry)
    for _ in range(2):
        text = await metrics.text(set(), open_metrics=False)
        assert "whole 1.0" in text
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "a collector of metrics is left out while it fails"
    ]
    broken.error = None
    assert "late 1.0" in await metrics.text(set(), open_metrics=False)


async def test_values_that_are_none_cost_their_metric_and_a_line(
    registry: UserRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    bad = Metric("bad", "", "gauge")
    bad.add_sample("bad", {"a": 1}, "much")  # type: ignore[dict-item,arg-type]
    registry.register(_Collector(bad, GaugeMetricFamily("good", "", 1)))
    metrics = users(registry)
    for _ in range(2):
        assert await metrics.text(set(), open_metrics=True) == (
            "# HELP good \n# TYPE good gauge\ngood 1.0\n"
        )
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("metrics 'bad' of a user are left out: ")


@pytest.mark.parametrize("name", ["nv_inference_count", "penstock_x", "taken", "counted"])
async def test_names_on_the_page_are_taken(
    registry: UserRegistry, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry.register(_Collector(GaugeMetricFamily(name, "", 1)))
    assert await shown(registry, "taken", "counted_total") == ""
    assert caplog.messages == [
        f"metrics '{name}' of a user are left out: another metric has its name"
    ]


async def test_two_collectors_of_one_name_show_the_first(registry: UserRegistry) -> None:
    for value in (1, 2):
        registry.register(_Collector(GaugeMetricFamily("same", "", value)))
    assert (await shown(registry)).splitlines()[2:] == ["same 1.0"]


async def test_a_collector_that_hangs_is_not_waited_for(
    registry: UserRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    asked, go_on = threading.Semaphore(0), threading.Event()

    class Hanging:
        def collect(self) -> Iterable[Metric]:
            asked.release()
            go_on.wait(60)
            return [GaugeMetricFamily("late", "", 1)]

    registry.register(Hanging())
    metrics = users(registry, patience=0.01)
    assert await metrics.text(set(), open_metrics=False) == ""
    assert await metrics.text(set(), open_metrics=False) == ""  # not asked again
    go_on.set()
    assert caplog.messages == [
        "collectors of metrics take more than 0.01 s and are left out until they return"
    ]
    patient = users(registry)
    assert "late 1.0" in await patient.text(set(), open_metrics=False)
    assert asked.acquire(timeout=60)
    assert asked.acquire(timeout=60)
    assert not asked.acquire(blocking=False)


async def test_a_hanging_collector_holds_no_loop_after_its_end(registry: UserRegistry) -> None:
    gone = asyncio.new_event_loop()
    go_on, done = threading.Event(), threading.Event()

    class Hanging:
        def collect(self) -> Iterable[Metric]:
            go_on.wait(60)
            done.set()
            return []

    registry.register(Hanging())
    metrics = users(registry, patience=0.01)
    await asyncio.to_thread(gone.run_until_complete, metrics.text(set(), open_metrics=False))
    gone.close()
    go_on.set()
    assert await asyncio.to_thread(done.wait, 60)


def test_what_is_unregistered_is_forgotten(registry: UserRegistry) -> None:
    collector = _Collector(GaugeMetricFamily("x", "", 1))
    registry.register(collector)
    assert list(registry.collect()) == list(collector.metrics)
    registry.unregister(collector)
    assert list(registry.collect()) == []
    with pytest.raises(KeyError):
        registry.unregister(collector)


def test_authors_of_backends_find_the_registry() -> None:
    assert metrics_registry() is REGISTRY
    assert isinstance(metrics_registry(), CollectorRegistry)
