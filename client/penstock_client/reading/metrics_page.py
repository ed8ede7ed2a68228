"""A metrics page as values: counters of models, model processes, and the machine.

It is Prometheus exposition: text in format 0.0.4, or OpenMetrics without its exemplars.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from penstock_client.reading.counters import (
    CacheCounts,
    Durations,
    GpuNumbers,
    Machine,
    ModelCounters,
    ModelKey,
    ProcessKey,
    ProcessNumbers,
)

Labels = tuple[tuple[str, str], ...]

_SAMPLE = re.compile(
    r'([a-zA-Z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]+([^ \t]+)', re.ASCII
)
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"', re.ASCII)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n"}

_PROCESS = "penstock_model_process_"
_FAILURE = "nv_inference_request_failure"
_CANCELLED = "penstock_cancelled_total"
_BUCKET = "_bucket"
_PARTS = ("_sum", "_count", "_created")
_GPU = ("nv_gpu_", "nv_energy_")
_SERVER = ("nv_", "penstock_in_flight_requests")
"""Names of the server's own numbers; others of a model are its engine's."""


class Sample(NamedTuple):
    """One line of a metrics page; `labels` in the order of the page."""

    name: str
    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """What one scrape tells."""

    models: Mapping[ModelKey, ModelCounters] = field(default_factory=dict)
    processes: Mapping[ProcessKey, ProcessNumbers] = field(default_factory=dict)
    machine: Machine = field(default_factory=Machine)


def read_page(text: str) -> MetricsPage:
    """The page of any server with Triton's metrics; what it does not have is left out."""
    models: defaultdict[ModelKey, _ModelSamples] = defaultdict(_ModelSamples)
    processes: defaultdict[ProcessKey, dict[str, float]] = defaultdict(dict)
    gpus: defaultdict[str, dict[str, float]] = defaultdict(dict)
    server: dict[str, float] = {}
    for sample in parse(text):
        labels = dict(sample.labels)
        model, version = labels.get("model", ""), labels.get("version", "")
        if sample.name.startswith(_PROCESS):
            key = ProcessKey(model, version, labels.get("model_instance", ""))
            processes[key][sample.name.removeprefix(_PROCESS)] = sample.value
        elif sample.name.startswith(_GPU) and "model" not in labels:
            gpus[labels.get("gpu_uuid", "")][sample.name] = sample.value
        elif "model" in labels and "version" in labels:
            models[ModelKey(model, version)].add(sample, labels)
        elif not sample.labels:
            server[sample.name] = sample.value
    return MetricsPage(
        {key: found.counters() for key, found in models.items()},
        {key: _process(numbers) for key, numbers in processes.items()},
        _machine(server, gpus),
    )


class _ModelSamples:
    """Gathers the samples of one model version; those of several GPUs are added up."""

    def __init__(self) -> None:
        self._totals: defaultdict[str, float] = defaultdict(float)
        self._failures: defaultdict[str, float] = defaultdict(float)
        self._cancelled: defaultdict[str, float] = defaultdict(float)
        self._buckets: defaultdict[str, defaultdict[float, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        self._quantiles: defaultdict[str, dict[float, float]] = defaultdict(dict)
        self._engine: set[str] = set()

    def add(self, sample: Sample, labels: Mapping[str, str]) -> None:
        name, _, value = sample
        if name == _FAILURE:
            self._failures[labels.get("reason", "")] += value
        elif name == _CANCELLED:
            self._cancelled[labels.get("phase", "")] += value
        elif name.endswith(_BUCKET) and (bound := _bound(labels.get("le"))) is not None:
            self._buckets[name.removesuffix(_BUCKET)][bound] += value
        elif (quantile := _bound(labels.get("quantile"))) is not None:
            self._quantiles[name][quantile] = value
        else:
            self._totals[name] += value
            if _is_engine(name, sample.labels):
                self._engine.add(name)

    def counters(self) -> ModelCounters:
        parts = {base + part for base in (*self._buckets, *self._quantiles) for part in _PARTS}
        return ModelCounters(
            success=self._total("nv_inference_request_success"),
            inferences=self._total("nv_inference_count"),
            executions=self._total("nv_inference_exec_count"),
            failures=dict(self._failures),
            durations=self._durations(),
            cache=self._cache(),
            pending=self._totals.get("nv_inference_pending_request_count"),
            in_flight=self._totals.get("penstock_in_flight_requests"),
            cancelled=dict(self._cancelled),
            engine={name: self._totals[name] for name in sorted(self._engine - parts)},
            histograms={name: dict(buckets) for name, buckets in self._buckets.items()},
            quantiles={name: dict(values) for name, values in self._quantiles.items()},
        )

    def _total(self, name: str) -> float:
        return self._totals.get(name, 0.0)

    def _durations(self) -> Durations | None:
        """Sums of the counters; `None` where the server was told to leave them out (ME-18)."""
        if "nv_inference_request_duration_us" not in self._totals:
            return None
        phases = ("request", "queue", "compute_input", "compute_infer", "compute_output")
        return Durations(
            *(self._total(f"nv_inference_{each}_duration_us") / 1e6 for each in phases)
        )

    def _cache(self) -> CacheCounts | None:
        if "nv_cache_num_hits_per_model" not in self._totals:
            return None
        names = ("nv_cache_num_hits_per_model", "nv_cache_num_misses_per_model")
        return CacheCounts(*map(self._total, names))


def _is_engine(name: str, labels: Labels) -> bool:
    """Whether a number is the engine's own: it has no label beside the model's and its tags.

    What an engine counts by reason or by tenant is shown as one sum.
    """
    own = {"model", "version", "reason", "tenant"}
    return not name.startswith(_SERVER) and all(
        label in own or label.startswith("_") for label, _ in labels
    )


def _bound(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _process(numbers: Mapping[str, float]) -> ProcessNumbers:
    pid = numbers.get("pid")
    return ProcessNumbers(
        up=bool(numbers.get("up", 0)),
        pid=None if pid is None else int(pid),
        memory=numbers.get("resident_memory_bytes"),
        restarts=numbers.get("restarts_total", 0.0),
    )


def _machine(server: Mapping[str, float], gpus: Mapping[str, Mapping[str, float]]) -> Machine:
    return Machine(
        cpu=server.get("nv_cpu_utilization"),
        memory_used=server.get("nv_cpu_memory_used_bytes"),
        memory_total=server.get("nv_cpu_memory_total_bytes"),
        gpus=tuple(_gpus(gpus.items())),
    )


def _gpus(gpus: Iterable[tuple[str, Mapping[str, float]]]) -> Iterator[GpuNumbers]:
    for uuid, numbers in sorted(gpus, key=lambda gpu: gpu[0]):
        yield GpuNumbers(
            uuid,
            utilization=numbers.get("nv_gpu_utilization"),
            memory_used=numbers.get("nv_gpu_memory_used_bytes"),
            memory_total=numbers.get("nv_gpu_memory_total_bytes"),
            power=numbers.get("nv_gpu_power_usage"),
        )


def parse(text: str) -> Iterator[Sample]:
    """The samples of a metrics page; comments and other lines are left out."""
    for line in text.split("\n"):
        if not line or line[0] == "#":
            continue
        found = _SAMPLE.match(line)
        value = None if found is None else _number(found[3])
        if found is not None and value is not None:
            yield Sample(found[1], _labels(found[2] or ""), value)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@lru_cache(maxsize=1 << 16)  # the same labels stand in many lines, and in each scrape
def _labels(text: str) -> Labels:
    return tuple((name, _unescaped(value)) for name, value in _LABEL.findall(text))


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), value)
