"""The metrics page: counters of models, gauges of engines and of the machine (area S).

It reads the numbers when it is asked for and keeps none. The text is Prometheus' format 0.0.4,
with names, help and order as dashboards made for Triton expect them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from penstock.caching import CacheStatistics, ResponseCache
from penstock.core.exposition import Family, MetricKind, Series, render
from penstock.core.measurement import Measurement
from penstock.core.statistics import FailureReason, Statistics
from penstock.models.views import Gauge, ModelStatistics
from penstock.telemetry.flow_metrics import flow_families
from penstock.telemetry.labels import model_labels
from penstock.telemetry.latency_metrics import latency_families
from penstock.telemetry.machine import MachineUsage
from penstock.telemetry.queue_metrics import queue_families

_NO_NAME = re.compile(r"[^a-zA-Z0-9_:]")
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
    """The names of metrics that are the server's own: a model's own cannot have them."""

    def __contains__(self, name: object) -> bool:
        return str(name).startswith(_OWN)


class MetricsPage:
    """Makes the page from what `snapshot` and `gauges` say at the time."""

    def __init__(
        self,
        snapshot: Callable[[], Iterable[ModelStatistics]],
        gauges: Callable[[], Iterable[Gauge]],
        machine: MachineUsage | None = None,
        cache: ResponseCache | None = None,
        latencies: Measurement | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._gauges = gauges
        self._machine = machine
        self._cache = cache
        self._latencies = latencies or Measurement()

    def text(self) -> str:
        """The page now. Metrics without a value are left out."""
        models = list(self._snapshot())
        found = [family for family in self._families(models) if family.series]
        return render([*found, *queue_families(models), *flow_families(models)])

    def _families(self, models: list[ModelStatistics]) -> Iterator[Family]:
        yield from _model_families(models, self._latencies.counter_latencies)
        if self._machine is not None:
            yield from _machine_families(self._machine)
        if self._cache is not None:
            yield from _cache_families(self._cache.statistics)
        yield from _engine_families(self._gauges())
        yield _load_times(models)
        yield from latency_families(models, self._latencies.summary_quantiles)


@dataclass(frozen=True, slots=True)
class _Counted:
    """A number that every model has."""

    name: str
    help: str
    value: Callable[[Statistics], int]
    kind: MetricKind = MetricKind.COUNTER

    def family(self, models: Iterable[ModelStatistics]) -> Family:
        series = tuple(
            Series(model_labels(model), self.value(model.statistics)) for model in models
        )
        return Family(self.name, self.help, self.kind, series)


_SUCCESS = _Counted(
    "nv_inference_request_success",
    "Number of successful inference requests, all batch sizes",
    lambda counted: counted.success.count,
)
_PER_MODEL = (
    _Counted(
        "nv_inference_count",
        "Number of inferences performed (does not include cached requests)",
        lambda counted: counted.inference_count,
    ),
    _Counted(
        "nv_inference_exec_count",
        "Number of model executions performed (does not include cached requests)",
        lambda counted: counted.execution_count,
    ),
    _Counted(
        "nv_inference_request_duration_us",
        "Cumulative inference request duration in microseconds (includes cached requests)",
        lambda counted: counted.success.ns // 1000,
    ),
    _Counted(
        "nv_inference_queue_duration_us",
        "Cumulative inference queuing duration in microseconds (includes cached requests)",
        lambda counted: counted.queue.ns // 1000,
    ),
    _Counted(
        "nv_inference_compute_input_duration_us",
        "Cumulative compute input duration in microseconds (does not include cached requests)",
        lambda counted: counted.compute_input.ns // 1000,
    ),
    _Counted(
        "nv_inference_compute_infer_duration_us",
        "Cumulative compute inference duration in microseconds (does not include cached requests)",
        lambda counted: counted.compute_infer.ns // 1000,
    ),
    _Counted(
        "nv_inference_compute_output_duration_us",
        "Cumulative inference compute output duration in microseconds"
        " (does not include cached requests)",
        lambda counted: counted.compute_output.ns // 1000,
    ),
)
_PER_CACHED_MODEL = (
    _Counted(
        "nv_cache_num_hits_per_model",
        "Number of cache hits per model",
        lambda counted: counted.cache_hit.count,
    ),
    _Counted(
        "nv_cache_hit_duration_per_model",
        "Total cache hit duration per model, in microseconds",
        lambda counted: counted.cache_hit.ns // 1000,
    ),
    _Counted(
        "nv_cache_num_misses_per_model",
        "Number of cache misses per model",
        lambda counted: counted.cache_miss.count,
    ),
    _Counted(
        "nv_cache_miss_duration_per_model",
        "Total cache miss (insert+lookup) duration per model, in microseconds",
        lambda counted: counted.cache_miss.ns // 1000,
    ),
)
_PENDING = _Counted(
    "nv_inference_pending_request_count",
    "Instantaneous number of pending requests awaiting execution per-model.",
    lambda counted: counted.pending,
    MetricKind.GAUGE,
)


def _model_families(models: list[ModelStatistics], durations: bool) -> Iterator[Family]:
    """Counters of models, those of durations only if they are wanted (ME-18)."""
    yield _SUCCESS.family(models)
    yield _failures(models)
    for counted in _PER_MODEL:
        if durations or "_duration_" not in counted.name:
            yield counted.family(models)
    cached = [model for model in models if model.statistics.cached]
    for counted in _PER_CACHED_MODEL:
        if durations or "_duration_" not in counted.name:
            yield counted.family(cached)
    yield _PENDING.family(models)


def _failures(models: list[ModelStatistics]) -> Family:
    """Failures by reason; every reason is there from the start, at 0 (ME-04)."""
    series = tuple(
        Series(
            model_labels(model, ("reason", reason.value)),
            model.statistics.failures[reason],
        )
        for model in models
        for reason in sorted(FailureReason)
    )
    help_text = "Number of failed inference requests, all batch sizes"
    return Family("nv_inference_request_failure", help_text, MetricKind.COUNTER, series)


def _load_times(models: Iterable[ModelStatistics]) -> Family:
    """How long the last load of each version took (ME-13)."""
    series = tuple(Series(model_labels(model), model.load_seconds) for model in models)
    return _gauge("nv_model_load_duration_secs", "Model load time in seconds", *series)


def _machine_families(machine: MachineUsage) -> Iterator[Family]:
    """Processor and memory of the whole machine (ME-26)."""
    used, total = machine.memory()
    for name, help_text, value in (
        ("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", machine.utilization()),
        ("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", total),
        ("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes", used),
    ):
        yield _gauge(name, help_text, Series((), value))


def _cache_families(cache: CacheStatistics) -> Iterator[Family]:
    """What the response cache has done for all models together (ME-20)."""
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


def _engine_families(gauges: Iterable[Gauge]) -> Iterator[Family]:
    """Numbers under the names that engines give them; one family a name, as the format demands."""
    series: dict[str, list[Series]] = {}
    for gauge in gauges:
        name = _NO_NAME.sub("_", gauge.name)
        labels = ("model", gauge.model), ("version", gauge.version)
        series.setdefault(name, []).append(Series(labels, gauge.value))
    for name, found in series.items():
        kind = MetricKind.COUNTER if name.endswith("_total") else MetricKind.GAUGE
        yield Family(name, "Reported by the model's engine", kind, tuple(found))


def _gauge(name: str, description: str, *series: Series) -> Family:
    return Family(name, description, MetricKind.GAUGE, series)
