"""The metrics page: counters of models, gauges of engines and of the machine (area S).

It reads the numbers when it is asked for and keeps none. The text is Prometheus' format 0.0.4,
with names, help and order as dashboards made for Triton expect them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.caching import CacheStatistics, ResponseCache
from penstock.core.exposition import render
from penstock.core.statistics import FailureReason, Statistics
from penstock.models.views import Gauge, ModelStatistics
from penstock.telemetry.flow_metrics import flow_families
from penstock.telemetry.machine import MachineUsage
from penstock.telemetry.queue_metrics import queue_families

_NO_NAME = re.compile(r"[^a-zA-Z0-9_:]")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its name, what it means, and its values by labels."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]


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
    ) -> None:
        self._snapshot = snapshot
        self._gauges = gauges
        self._machine = machine
        self._cache = cache

    def text(self) -> str:
        """The page now. Metrics without a value are left out."""
        models = list(self._snapshot())
        families = self._families(models)
        lines = "".join(_exposed(family) for family in families if family.samples)
        return lines + render([*queue_families(models), *flow_families(models)])

    def _families(self, models: list[ModelStatistics]) -> Iterator[Family]:
        yield from _model_families(models)
        if self._machine is not None:
            yield from _machine_families(self._machine)
        if self._cache is not None:
            yield from _cache_families(self._cache.statistics)
        yield from _engine_families(self._gauges())


@dataclass(frozen=True, slots=True)
class _Counted:
    """A number that every model has."""

    name: str
    help: str
    value: Callable[[Statistics], int]
    kind: str = "counter"

    def family(self, models: Iterable[ModelStatistics]) -> Family:
        samples = tuple((_labels(model), self.value(model.statistics)) for model in models)
        return Family(self.name, self.kind, self.help, samples)


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
    "gauge",
)


def _model_families(models: list[ModelStatistics]) -> Iterator[Family]:
    yield _SUCCESS.family(models)
    yield _failures(models)
    for counted in _PER_MODEL:
        yield counted.family(models)
    cached = [model for model in models if model.statistics.cached]
    for counted in _PER_CACHED_MODEL:
        yield counted.family(cached)
    yield _PENDING.family(models)


def _failures(models: list[ModelStatistics]) -> Family:
    """Failures by reason; every reason is there from the start, at 0 (ME-04)."""
    samples = tuple(
        (
            {"model": model.name, "reason": reason.value, "version": model.version},
            model.statistics.failures[reason],
        )
        for model in models
        for reason in sorted(FailureReason)
    )
    help_text = "Number of failed inference requests, all batch sizes"
    return Family("nv_inference_request_failure", "counter", help_text, samples)


def _machine_families(machine: MachineUsage) -> Iterator[Family]:
    """Processor and memory of the whole machine (ME-26)."""
    used, total = machine.memory()
    for name, help_text, value in (
        ("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", machine.utilization()),
        ("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", total),
        ("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes", used),
    ):
        yield Family(name, "gauge", help_text, (({}, value),))


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
        yield Family(f"nv_cache_{name}", "gauge", help_text, (({}, value),))


def _engine_families(gauges: Iterable[Gauge]) -> Iterator[Family]:
    """Numbers under the names that engines give them; one family a name, as the format demands."""
    samples: dict[str, list[Sample]] = {}
    for gauge in gauges:
        name = _NO_NAME.sub("_", gauge.name)
        labels = {"model": gauge.model, "version": gauge.version}
        samples.setdefault(name, []).append((labels, gauge.value))
    for name, found in samples.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        yield Family(name, kind, "Reported by the model's engine", tuple(found))


def _labels(model: ModelStatistics) -> Labels:
    return {"model": model.name, "version": model.version}


def _exposed(family: Family) -> str:
    lines = [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
    lines += [f"{family.name}{_braced(labels)} {_number(v)}" for labels, v in family.samples]
    return "\n".join(lines) + "\n"


def _braced(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e16 else repr(float(value))
