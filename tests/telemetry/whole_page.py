"""A metrics page with every family that there is."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Counter

from fakes.nvml import FakeNvml
from penstock.caching.local import LocalCache
from penstock.inflight.statistics import SummarizedStatistics
from penstock.metrics.collectors import UserRegistry
from penstock.metrics.custom import CustomMetrics
from penstock.metrics.exposition import Family
from penstock.metrics.histogram import Histogram
from penstock.metrics.language_model import LANGUAGE_MODEL_METRICS
from penstock.metrics.measurement import Measurement
from penstock.models.serving.answers import (
    EngineHistogram,
    Gauge,
    InstanceProcess,
    ModelStatistics,
)
from penstock.system.machine import MachineUsage
from penstock.system.nvml import Nvml
from penstock.telemetry.gpus import GpuUsage
from penstock.telemetry.metrics import MetricsPage, OwnNames
from penstock.telemetry.scrape import Scraper
from penstock.telemetry.server_families import (
    access_families,
    process_families,
    trace_families,
)
from penstock.telemetry.user_metrics import UserMetrics
from penstock.tracing.export import ExportCounts

_NUMBERS = [
    *(name for name, metric in LANGUAGE_MODEL_METRICS.items() if not metric.bounds),
    "penstock_shared_memory_blocks",
    "penstock_hung_processes",
    "penstock_process_hangs_total",
]


def _page() -> MetricsPage:
    counted = SummarizedStatistics()
    counted.cached = True
    counted.first_response = Histogram((100, 500))
    counted.succeeded(1000, 2000, 3000, 4000, 5000)
    counted.executed(3, 1, 2, 3)
    uncached = SummarizedStatistics()
    usage = GpuUsage([Nvml(FakeNvml()).gpu(0)], 2.0)
    usage.read()
    return MetricsPage(
        lambda: [ModelStatistics("m", "1", counted), ModelStatistics("n", "1", uncached)],
        lambda: [Gauge(name, "m", "1", 1) for name in _NUMBERS],
        MachineUsage(),
        LocalCache(1000),
        Measurement(histogram_latencies=True, summary_latencies=True, vllm_names=True),
        usage,
        lambda: [
            EngineHistogram(name, "m", "1", Histogram(metric.bounds))
            for name, metric in LANGUAGE_MODEL_METRICS.items()
            if metric.bounds
        ],
    )


def own_families() -> Iterator[Family]:
    """The server's own metrics."""
    yield from _page().families()
    yield from process_families([InstanceProcess("m", "1", "m_0_0", 1, 0)])
    yield from trace_families(ExportCounts())
    yield from access_families(0)


def whole_page() -> Scraper:
    """All of them, and those of a model and of a user."""
    custom, registry = CustomMetrics(OwnNames()), UserRegistry()
    family = custom.apply("m_0_0", "family", ("peer_requests_total", "requests seen", 0))
    custom.apply("m_0_0", "create", (family, {"model": "m"}, None))
    Counter("doors_opened", "as it says", registry=registry).inc()
    users = UserMetrics(OwnNames().__contains__, registry, 60.0)
    return Scraper(lambda: [*own_families(), *custom.snapshot()], users)
