"""The metrics page: counters of models, gauges of engines and of the machine.

It collects the values at each scrape and keeps none. The text is in Prometheus format 0.0.4, with
the names, help texts and order that dashboards made for Triton expect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from penstock.caching import CacheStatistics, ResponseCache
from penstock.metrics.exposition import Family, MetricKind, Series, render
from penstock.metrics.measurement import Measurement
from penstock.models.serving.answers import EngineHistogram, Gauge, ModelStatistics
from penstock.system.machine import MachineUsage
from penstock.telemetry.families import (
    engine_families,
    flow_families,
    latency_families,
    load_times,
    model_families,
    queue_families,
)
from penstock.telemetry.gpus import GpuReading, GpuUsage

_OWN = (
    "nv_inference_",
    "nv_cache_",
    "nv_cpu_",
    "nv_gpu_",
    "nv_model_",
    "nv_pinned_",
    "nv_energy_",
    "penstock_",
)


class OwnNames:
    """The names of the server's own metrics, reserved against models' custom metrics."""

    def __contains__(self, name: object) -> bool:
        return str(name).startswith(_OWN)


class MetricsPage:
    """A collector: renders the page from what `snapshot`, `gauges` and `histograms` give now."""

    def __init__(
        self,
        snapshot: Callable[[], Iterable[ModelStatistics]],
        gauges: Callable[[], Iterable[Gauge]],
        machine: MachineUsage | None = None,
        cache: ResponseCache | None = None,
        latencies: Measurement | None = None,
        gpus: GpuUsage | None = None,
        histograms: Callable[[], Iterable[EngineHistogram]] = tuple,
    ) -> None:
        self._snapshot = snapshot
        self._gauges = gauges
        self._machine = machine
        self._cache = cache
        self._latencies = latencies or Measurement()
        self._gpus = gpus
        self._histograms = histograms

    def text(self) -> str:
        """Render the page. Metrics without a value are left out."""
        return render(self.families())

    def families(self) -> Iterator[Family]:
        """The families in the order of the page; each series is made when it is asked for."""
        models = list(self._snapshot())
        if self._gpus is not None and (uuids := self._gpus.uuids):
            models = [_on_gpu(model, uuids) for model in models]
        yield from model_families(models, latencies=self._latencies.counter_latencies)
        yield from _pinned_families()
        if self._gpus is not None:
            yield from _gpu_families(self._gpus.readings)
        if self._machine is not None:
            yield from _machine_families(self._machine)
        if self._cache is not None:
            yield from _cache_families(self._cache.statistics)
        yield from engine_families(
            self._gauges(), self._histograms(), vllm_names=self._latencies.vllm_names
        )
        yield load_times(models)
        yield from latency_families(models, self._latencies.summary_quantiles)
        yield from queue_families(models)
        yield from flow_families(models)


def _on_gpu(model: ModelStatistics, uuids: Mapping[int, str]) -> ModelStatistics:
    """The model with the name of its GPU, if it is on one that is known."""
    uuid = "" if model.gpu is None else uuids.get(model.gpu, "")
    return replace(model, gpu_uuid=uuid) if uuid else model


_GPU_METRICS = (
    ("nv_gpu_utilization", "GPU utilization rate [0.0 - 1.0)", MetricKind.GAUGE),
    ("nv_gpu_memory_total_bytes", "GPU total memory, in bytes", MetricKind.GAUGE),
    ("nv_gpu_memory_used_bytes", "GPU used memory, in bytes", MetricKind.GAUGE),
    ("nv_gpu_power_usage", "GPU power usage in watts", MetricKind.GAUGE),
    ("nv_gpu_power_limit", "GPU power management limit in watts", MetricKind.GAUGE),
    (
        "nv_energy_consumption",
        "GPU energy consumption in joules since the Triton Server started",
        MetricKind.COUNTER,
    ),
)
"""Name, help text and kind, as Triton's (ME-21 to ME-24)."""


def _gpu_families(readings: Iterable[GpuReading]) -> Iterator[Family]:
    """Usage of the GPUs, each labelled with its UUID."""
    found = list(readings)
    for name, text, kind in _GPU_METRICS:
        series = (
            Series((("gpu_uuid", one.uuid),), one.values[name])
            for one in found
            if name in one.values
        )
        yield Family(name, text, kind, series)


def _pinned_families() -> Iterator[Family]:
    """The pool of pinned memory (ME-27): 0 bytes, since tensors travel without one."""
    for name, text in (
        ("total", "Pinned memory pool total memory size, in bytes"),
        ("used", "Pinned memory pool used memory size, in bytes"),
    ):
        yield _gauge(f"nv_pinned_memory_pool_{name}_bytes", text, Series((), 0))


def _machine_families(machine: MachineUsage) -> Iterator[Family]:
    """CPU and memory of the whole machine (ME-26)."""
    used, total = machine.memory()
    for name, help_text, value in (
        ("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", machine.utilization()),
        ("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", total),
        ("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes", used),
    ):
        yield _gauge(name, help_text, Series((), value))


def _cache_families(cache: CacheStatistics) -> Iterator[Family]:
    """Counters of the response cache, over all models (ME-20)."""
    for name, help_text, value in (
        ("util", "Cache utilization [0.0 - 1.0]", cache.utilization),
        ("num_entries", "Number of responses stored in response cache", cache.entries),
        ("num_hits", "Number of cache hits in response cache", cache.hits),
        ("num_misses", "Number of cache misses in response cache", cache.misses),
        ("num_lookups", "Number of cache lookups in response cache", cache.lookups),
        ("num_evictions", "Number of cache evictions in response cache", cache.evictions),
        (
            "lookup_duration",
            "Total cache lookup duration (hit and miss), in microseconds",
            cache.lookup_ns // 1000,
        ),
        (
            "insertion_duration",
            "Total cache insertion duration, in microseconds",
            cache.insertion_ns // 1000,
        ),
    ):
        yield _gauge(f"nv_cache_{name}", help_text, Series((), value))


def _gauge(name: str, description: str, *series: Series) -> Family:
    return Family(name, description, MetricKind.GAUGE, series)
