"""Collectors of users: on the page while they work, left out and told of once while they fail."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from penstock.metrics.collectors import UserRegistry


class Collector:
    """Tells of one gauge, unless it is broken."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.broken = False

    def describe(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(self.name, "")

    def collect(self) -> Iterable[Metric]:
        if self.broken:
            raise ValueError("no")
        yield GaugeMetricFamily(self.name, "", value=1)


def names(registry: UserRegistry) -> list[str]:
    return [metric.name for metric in registry.collect()]


def test_a_registry_is_empty_until_there_is_a_collector_and_after_it() -> None:
    registry, one = UserRegistry(), Collector("a")
    seen = [registry.empty]
    registry.register(one)
    seen.append(registry.empty)
    assert names(registry) == ["a"]
    registry.unregister(one)
    assert [*seen, registry.empty] == [True, False, True]
    assert names(registry) == []
    with pytest.raises(KeyError):
        registry.unregister(one)


def test_a_name_is_one_collector_s() -> None:
    registry = UserRegistry()
    registry.register(Collector("a"))
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(Collector("a"))
    assert names(registry) == ["a"]


def test_a_broken_collector_costs_its_own_metrics_and_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry, broken = UserRegistry(), Collector("a")
    registry.register(broken)
    registry.register(Collector("b"))
    broken.broken = True
    assert [names(registry) for _ in range(3)] == [["b"]] * 3
    assert len(caplog.records) == 1
    assert "a collector of metrics is left out while it fails" in caplog.text
    broken.broken = False
    assert names(registry) == ["a", "b"]
    broken.broken = True
    assert names(registry) == ["b"]
    assert len(caplog.records) == 2


def test_a_collector_that_comes_back_may_fail_anew(caplog: pytest.LogCaptureFixture) -> None:
    registry, one = UserRegistry(), Collector("a")
    one.broken = True
    for _ in range(2):
        registry.register(one)
        assert names(registry) == []
        registry.unregister(one)
    assert len(caplog.records) == 2
