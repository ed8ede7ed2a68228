"""Families of the metrics page: models, batching, latencies, requests in flight, model processes,
engines under their own names, and the export of traces.

Triton has no metrics of batching histograms, of tasks and of model processes.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from pathlib import Path

from penstock.inflight.statistics import (
    QUEUE_BOUNDS,
    Duration,
    FailureReason,
    Phase,
    Statistics,
    SummarizedDuration,
)
from penstock.metrics.exposition import Family, Labels, MetricKind, Series
from penstock.metrics.language_model import LANGUAGE_MODEL_METRICS, TRITON_VLLM_METRICS, VLLM_NAMES
from penstock.metrics.measurement import Quantile
from penstock.models.loading.statistics_of import FIRST_RESPONSE
from penstock.models.releases.alias import Cause
from penstock.models.releases.releases import Releases
from penstock.models.releases.shadow import Outcome
from penstock.models.remote.downloads import Traffic
from penstock.models.residency.residency import ModelResidency
from penstock.models.serving.answers import (
    EngineHistogram,
    EngineMetric,
    Gauge,
    InstanceProcess,
    ModelStatistics,
)
from penstock.system.certificates import ServerCertificates
from penstock.tracing.export import ExportCounts


@dataclass(frozen=True, slots=True)
class _Counted:
    """A counter of every model; one that is a `latency` sums up durations and can be disabled."""

    name: str
    help: str
    value: Callable[[Statistics], int]
    kind: MetricKind = MetricKind.COUNTER
    latency: bool = False

    def family(self, models: Iterable[ModelStatistics]) -> Family:
        series = (Series(model_labels(model), self.value(model.statistics)) for model in models)
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
        latency=True,
    ),
    _Counted(
        "nv_inference_queue_duration_us",
        "Cumulative inference queuing duration in microseconds (includes cached requests)",
        lambda counted: counted.queue.ns // 1000,
        latency=True,
    ),
    _Counted(
        "nv_inference_compute_input_duration_us",
        "Cumulative compute input duration in microseconds (does not include cached requests)",
        lambda counted: counted.compute_input.ns // 1000,
        latency=True,
    ),
    _Counted(
        "nv_inference_compute_infer_duration_us",
        "Cumulative compute inference duration in microseconds (does not include cached requests)",
        lambda counted: counted.compute_infer.ns // 1000,
        latency=True,
    ),
    _Counted(
        "nv_inference_compute_output_duration_us",
        "Cumulative inference compute output duration in microseconds"
        " (does not include cached requests)",
        lambda counted: counted.compute_output.ns // 1000,
        latency=True,
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
        latency=True,
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
        latency=True,
    ),
)
_PENDING = _Counted(
    "nv_inference_pending_request_count",
    "Instantaneous number of pending requests awaiting execution per-model.",
    lambda counted: counted.pending,
    MetricKind.GAUGE,
)


def model_families(models: list[ModelStatistics], *, latencies: bool) -> Iterator[Family]:
    """The counters of models; those of latencies only if enabled (ME-18)."""
    yield _SUCCESS.family(models)
    yield _failures(models)
    for counted in _PER_MODEL:
        if latencies or not counted.latency:
            yield counted.family(models)
    cached = [model for model in models if model.statistics.cached]
    for counted in _PER_CACHED_MODEL:
        if latencies or not counted.latency:
            yield counted.family(cached)
    yield _PENDING.family(models)


def _failures(models: list[ModelStatistics]) -> Family:
    """Failures by reason; each reason is listed from the start, at 0 (ME-04)."""
    series = (
        Series(
            model_labels(model, ("reason", reason.value)),
            model.statistics.failures[reason],
        )
        for model in models
        for reason in sorted(FailureReason)
    )
    help_text = "Number of failed inference requests, all batch sizes"
    return Family("nv_inference_request_failure", help_text, MetricKind.COUNTER, series)


def load_times(models: Iterable[ModelStatistics]) -> Family:
    """The duration of each version's last load, in seconds (ME-13)."""
    series = (Series(model_labels(model), model.load_seconds) for model in models)
    help_text = "Model load time in seconds"
    return Family("nv_model_load_duration_secs", help_text, MetricKind.GAUGE, series)


BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Upper bounds of the buckets of batch sizes, in rows."""


def queue_families(models: Iterable[ModelStatistics]) -> Iterator[Family]:
    """The histograms of every model with executions."""
    busy = [model for model in models if model.statistics.execution_count]
    if not busy:
        return
    yield Family(
        "penstock_batch_size",
        "Rows per model execution",
        MetricKind.HISTOGRAM,
        (_batch_sizes(model) for model in busy),
    )
    yield Family(
        "penstock_queue_duration_seconds",
        "Time that successful requests waited for an instance",
        MetricKind.HISTOGRAM,
        (_queue_times(model) for model in busy),
    )


def _batch_sizes(model: ModelStatistics) -> Series:
    counts = {rows: batch.compute_infer.count for rows, batch in model.statistics.batches.items()}
    buckets = tuple(
        (bound, sum(count for rows, count in counts.items() if rows <= bound))
        for bound in (*BATCH_SIZES, inf)
    )
    total = sum(rows * count for rows, count in counts.items())
    return Series(model_labels(model), total, buckets)


def _queue_times(model: ModelStatistics) -> Series:
    counted = model.statistics
    buckets = zip((*QUEUE_BOUNDS, inf), accumulate(counted.queue_times), strict=True)
    traced = counted.queue_exemplars
    return Series(
        model_labels(model),
        counted.queue.ns / 1e9,
        tuple(buckets),
        exemplars=tuple(map(traced.get, range(len(QUEUE_BOUNDS) + 1))) if traced else (),
    )


def flow_families(models: Iterable[ModelStatistics]) -> Iterator[Family]:
    """Metrics of every model; and the tasks of the event loop, if one runs in this thread."""
    models = list(models)
    if models:
        yield Family(
            "penstock_cancelled_total",
            "Inference requests that were cancelled, by how far they had come",
            MetricKind.COUNTER,
            (_cancelled(model, phase) for model in models for phase in Phase),
        )
        yield Family(
            "penstock_in_flight_requests",
            "Inference requests that are admitted and not answered in full",
            MetricKind.GAUGE,
            (Series(model_labels(model), model.statistics.in_flight) for model in models),
        )
    tasks = _tasks()
    if tasks is not None:
        text = "Tasks of the server's event loop"
        yield Family("penstock_event_loop_tasks", text, MetricKind.GAUGE, (Series((), tasks),))


def _cancelled(model: ModelStatistics, phase: Phase) -> Series:
    labels = model_labels(model, ("phase", phase.value))
    return Series(labels, model.statistics.cancelled[phase])


def _tasks() -> int | None:
    try:
        return len(asyncio.all_tasks() - {asyncio.current_task()})  # which writes this page
    except RuntimeError:
        return None


_REASONS = ("buffer_full", "exit", "exporter_died", "not_plain", "refused")


def trace_families(counts: ExportCounts) -> Iterator[Family]:
    """The families of the OpenTelemetry mode.

    Each reason of a loss is listed from the start, at 0: of a series that begins with the first
    loss Prometheus would see no increase.
    """
    yield _trace_family(
        "exported_total",
        "Spans that the collector of traces has taken",
        Series((), counts.exported),
    )
    reasons = sorted({*_REASONS, *counts.dropped})
    lost = (Series((("reason", name),), counts.dropped[name]) for name in reasons)
    yield _trace_family("dropped_total", "Spans that were lost, by the reason", *lost)


def _trace_family(name: str, text: str, *series: Series) -> Family:
    return Family(f"penstock_trace_spans_{name}", text, MetricKind.COUNTER, series)


def access_families(failures: int) -> Iterator[Family]:
    """The family of an access policy, whose file was wrong so many times."""
    yield Family(
        "penstock_access_policy_reload_failures_total",
        "Changed files of the access policy that were wrong, and left the old policy in force",
        MetricKind.COUNTER,
        [Series((), failures)],
    )


def audit_families(lost: int) -> Iterator[Family]:
    """The family of an audit log, which has lost so many lines."""
    yield Family(
        "penstock_audit_lines_lost_total",
        "Lines that the audit log lacks: its disk was full, or too slow",
        MetricKind.COUNTER,
        [Series((), lost)],
    )


def certificate_families(certificates: Iterable[ServerCertificates]) -> Iterator[Family]:
    """The families of TLS, by endpoint. An expiry that cannot be read is left out."""
    labelled = [((("endpoint", one.name),), one) for one in certificates]
    ends = ((labels, one.expires) for labels, one in labelled)
    yield Family(
        "penstock_tls_certificate_expiry_timestamp_seconds",
        "When the certificate that is in use expires, in seconds since the epoch",
        MetricKind.GAUGE,
        [Series(labels, round(expires)) for labels, expires in ends if expires is not None],
    )
    yield Family(
        "penstock_tls_certificate_changes_total",
        "Changed certificates that were taken into use",
        MetricKind.COUNTER,
        [Series(labels, one.changes) for labels, one in labelled],
    )
    yield Family(
        "penstock_tls_certificate_reload_failures_total",
        "Changed certificates that were wrong, and left those before them in use",
        MetricKind.COUNTER,
        [Series(labels, one.failures) for labels, one in labelled],
    )


def repository_families(traffic: Traffic) -> Iterator[Family]:
    """The families of repositories that lie elsewhere."""
    objects = (("fetched", traffic.fetched_objects), ("cached", traffic.cached_objects))
    for name, text, series in (
        (
            "bytes_total",
            "Bytes that were fetched from repositories",
            [Series((), traffic.fetched_bytes)],
        ),
        (
            "objects_total",
            "Objects of repositories that models needed, by where they came from",
            [Series((("source", source),), count) for source, count in objects],
        ),
        (
            "retries_total",
            "Requests to repositories that broke, and were made again from where they broke",
            [Series((), traffic.retries)],
        ),
    ):
        yield Family(f"penstock_repository_{name}", text, MetricKind.COUNTER, series)


def residency_families(residency: ModelResidency) -> Iterator[Family]:
    """The families of models that are loaded when they are called."""
    counts, held = residency.counts, residency.resident_bytes()
    yield Family(
        "penstock_model_resident_bytes",
        "Bytes of the memory budget that a loaded model has, by device",
        MetricKind.GAUGE,
        [
            Series((("model", name), ("device", device)), size)
            for name, sizes in held.items()
            for device, size in sizes.items()
        ],
    )
    for name, text, counted in (
        ("loads_total", "Loads of models, by what caused them", counts.loads),
        ("unloads_total", "Unloads of models, by what caused them", counts.unloads),
        ("wakes_total", "Wakes of sleeping models, by what caused them", residency.rests.wakes),
    ):
        series = [
            Series((("model", model), ("cause", cause)), number)
            for (model, cause), number in counted.items()
        ]
        yield Family(f"penstock_model_{name}", text, MetricKind.COUNTER, series)
    yield Family(
        "penstock_model_residency_state",
        "1 for the state of each model that is loaded, or is being loaded",
        MetricKind.GAUGE,
        [
            Series((("model", name), ("state", state)), 1)
            for name, state in residency.states().items()
        ],
    )
    for name, text, seconds in (
        ("loading", "Seconds for which models were being loaded", counts.loading),
        ("resident", "Seconds for which models were loaded", residency.resident_seconds()),
    ):
        yield Family(
            f"penstock_model_{name}_seconds_total",
            text,
            MetricKind.COUNTER,
            [Series((("model", model),), value) for model, value in seconds.items()],
        )
    yield Family(
        "penstock_model_load_wait_seconds",
        "Seconds that calls waited for the load of their model",
        MetricKind.HISTOGRAM,
        [Series((), counts.waits.total, counts.waits.buckets, exemplars=counts.waits.exemplars)],
    )


_LATENCY_BOUNDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, inf)


def alias_families(releases: Releases) -> Iterator[Family]:
    """The families of aliases; none without any."""
    models = [model for alias in releases.aliases() if (model := releases.find(alias.name))]
    if not models and not releases.went_back:
        return
    targets = [
        ((("alias", model.alias.name), ("target", target.text)), target, model.windows[target.text])
        for model in models
        for target in model.alias.targets
    ]
    yield Family(
        "penstock_alias_weight",
        "Percent of the requests of an alias that go to a target",
        MetricKind.GAUGE,
        [Series(labels, target.weight) for labels, target, _ in targets],
    )
    for name, text, failed in (
        ("requests_total", "Requests of an alias that a target answered, or failed", False),
        ("failures_total", "Requests of an alias that a target failed", True),
    ):
        series = [Series(k, one.failed if failed else one.requests) for k, _, one in targets]
        yield Family(f"penstock_alias_{name}", text, MetricKind.COUNTER, series)
    every = {(model.alias.name, cause) for model in models for cause in Cause}
    yield Family(
        "penstock_alias_rollbacks_total",
        "Times that an alias went back to its first target, by what caused that",
        MetricKind.COUNTER,
        [
            Series((("alias", alias), ("cause", str(cause))), releases.went_back[alias, cause])
            # From 0 on, as nobody sees a counter increase that begins with 1.
            for alias, cause in sorted({*every, *releases.went_back})
        ],
    )
    shadows = [(m.alias.name, m.shadow) for m in models if m.shadow is not None]
    yield Family(
        "penstock_shadow_requests_total",
        "Requests of an alias that were to be copied to its shadow, by what came of it",
        MetricKind.COUNTER,
        [
            Series((("alias", name), ("outcome", str(outcome))), shadow.counts.outcomes[outcome])
            for name, shadow in shadows
            for outcome in Outcome
        ],
    )
    yield Family(
        "penstock_shadow_latency_seconds",
        "Seconds that requests with a copy took, and those of the copy",
        MetricKind.HISTOGRAM,
        [
            Series((("alias", name), ("answer", side)), times.total, times.buckets(_LATENCY_BOUNDS))
            for name, shadow in shadows
            for side, times in (("first", shadow.counts.first), ("second", shadow.counts.second))
        ],
    )


_PAGE = os.sysconf("SC_PAGE_SIZE")
_RESIDENT = 1  # the field of /proc/<pid>/statm, in pages


def process_families(
    processes: Iterable[InstanceProcess], proc: Path = Path("/proc")
) -> Iterator[Family]:
    """The families of the model processes, read now; none where there are no such processes.

    A process that is down has no id and no memory: those series are left out.
    """
    found = list(processes)
    serving = [(one, one.pid) for one in found if one.pid is not None]
    sizes = ((one, resident_bytes(pid, proc)) for one, pid in serving)
    yield from (
        _process_family(
            "up",
            "Whether the process of the instance runs: 0 until it is started again",
            ((one, int(one.pid is not None)) for one in found),
        ),
        _process_family("pid", "Process id of the instance's process", serving),
        _process_family(
            "resident_memory_bytes",
            "Resident memory of the instance's process, with the shared memory that it has touched",
            ((one, size) for one, size in sizes if size is not None),
        ),
        _process_family(
            "restarts_total",
            "Processes of the instance that were started after the first",
            ((one, one.restarts) for one in found),
            MetricKind.COUNTER,
        ),
    )


def _process_family(
    name: str,
    text: str,
    values: Iterable[tuple[InstanceProcess, int]],
    kind: MetricKind = MetricKind.GAUGE,
) -> Family:
    series = (Series(_process_labels(one), value) for one, value in values)
    return Family(f"penstock_model_process_{name}", text, kind, series)


def resident_bytes(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Bytes of the process that are in memory; `None` if it is gone."""
    try:
        pages = (proc / str(pid) / "statm").read_text().split()[_RESIDENT]
    except (OSError, IndexError):
        return None
    return int(pages) * _PAGE


def _process_labels(one: InstanceProcess) -> tuple[tuple[str, str], ...]:
    return (("model", one.model), ("model_instance", one.instance), ("version", one.version))


_NO_NAME = re.compile(r"[^a-zA-Z0-9_:]|^(?=[0-9]|$)")
"""Places of an underscore in a family's name: other characters, and before a leading digit."""

_TAKEN = ("model", "version", "le")
"""Labels that are the server's own."""


def engine_families(
    gauges: Iterable[Gauge],
    histograms: Iterable[EngineHistogram] = (),
    *,
    vllm_names: bool = False,
) -> Iterator[Family]:
    """One family per name; numbers whose names end with `_total` are counters.

    With `vllm_names`, families that vLLM has too are there a second time, under its names.
    """
    numbers: dict[str, list[Gauge]] = {}
    for gauge in gauges:
        numbers.setdefault(_NO_NAME.sub("_", gauge.family), []).append(gauge)
    for name, found in numbers.items():
        kind = MetricKind.COUNTER if name.endswith("_total") else MetricKind.GAUGE
        yield Family(name, _description(name), kind, (_number(one) for one in found))
    for name, theirs in VLLM_NAMES.items() if vllm_names else ():
        if name in numbers and theirs not in numbers:
            series = (_number(one) for one in numbers[name])
            yield Family(theirs, _description(name), MetricKind.GAUGE, series)
    observed: dict[str, list[EngineHistogram]] = {}
    for histogram in histograms:
        name = _NO_NAME.sub("_", histogram.family)
        if name not in numbers:
            observed.setdefault(name, []).append(histogram)
    for name, each in observed.items():
        series = (_distribution(one) for one in each)
        yield Family(name, _description(name), MetricKind.HISTOGRAM, series)


def _description(name: str) -> str:
    declared = LANGUAGE_MODEL_METRICS.get(name) or TRITON_VLLM_METRICS.get(name)
    return "Reported by the model's engine" if declared is None else declared.description


def _engine_labels(one: EngineMetric) -> Labels:
    """Each label once, whatever the backend has named its own."""
    own = {name: value for name, value in one.labels if name not in _TAKEN}
    return (*own.items(), ("model", one.model), ("version", one.version))


def _number(one: Gauge) -> Series:
    return Series(_engine_labels(one), one.value)


def _distribution(one: EngineHistogram) -> Series:
    histogram = one.histogram
    return Series(
        _engine_labels(one), histogram.total, histogram.buckets, exemplars=histogram.exemplars
    )


Label = tuple[str, str]


def model_labels(model: ModelStatistics, *more: Label) -> tuple[Label, ...]:
    """Tags of the configuration (C-31), GPU, model, `more`, and version, sorted by name."""
    labels = (("model", model.name), *more, ("version", model.version))
    if model.gpu_uuid:
        labels = (("gpu_uuid", model.gpu_uuid), *labels)
    if not model.tags:
        return labels
    tags = sorted((f"_{tag}", value) for tag, value in model.tags.items())
    return (*tags, *labels)


@dataclass(frozen=True, slots=True)
class _Summarized:
    """A duration with a summary; `cached`: whether for models with a cache, without, or both."""

    name: str
    help: str
    duration: Callable[[Statistics], Duration]
    cached: Sequence[bool] = (True, False)


_SUMMARIES = (
    _Summarized(
        "nv_inference_request_summary_us",
        "Summary of inference request duration in microseconds (includes cached requests)",
        lambda counted: counted.success,
        cached=(False,),
    ),
    _Summarized(
        "nv_inference_queue_summary_us",
        "Summary of inference queuing duration in microseconds (includes cached requests)",
        lambda counted: counted.queue,
    ),
    _Summarized(
        "nv_inference_compute_input_summary_us",
        "Cumulative compute input duration in microseconds (does not include cached requests)",
        lambda counted: counted.compute_input,
    ),
    _Summarized(
        "nv_inference_compute_infer_summary_us",
        "Cumulative compute inference duration in microseconds (does not include cached requests)",
        lambda counted: counted.compute_infer,
    ),
    _Summarized(
        "nv_inference_compute_output_summary_us",
        "Cumulative inference compute output duration in microseconds"
        " (does not include cached requests)",
        lambda counted: counted.compute_output,
    ),
    _Summarized(
        "nv_cache_hit_summary_per_model",
        "Summary of cache hit counts/durations per model, in microseconds.",
        lambda counted: counted.cache_hit,
        cached=(True,),
    ),
    _Summarized(
        "nv_cache_miss_summary_per_model",
        "Summary of cache miss counts/durations per model, in microseconds.",
        lambda counted: counted.cache_miss,
        cached=(True,),
    ),
)


def latency_families(
    models: Iterable[ModelStatistics], quantiles: Sequence[Quantile]
) -> Iterator[Family]:
    """Families of the models that measure distributions; others have sums only and are left out."""
    models = list(models)
    for summarized in _SUMMARIES:
        yield _summaries(summarized, models, [q.quantile for q in quantiles])
    yield Family(
        FIRST_RESPONSE,
        "Duration from request to first response in milliseconds",
        MetricKind.HISTOGRAM,
        (
            Series(
                model_labels(model),
                histogram.total,
                histogram.buckets,
                exemplars=histogram.exemplars,
            )
            for model in models
            if (histogram := model.statistics.first_response) is not None
        ),
    )


def _summaries(
    summarized: _Summarized, models: Iterable[ModelStatistics], wanted: Sequence[float]
) -> Family:
    series = (
        _summary(model, duration, wanted)
        for model in models
        if isinstance(duration := summarized.duration(model.statistics), SummarizedDuration)
        and model.statistics.cached in summarized.cached
    )
    return Family(summarized.name, summarized.help, MetricKind.SUMMARY, series)


def _summary(
    model: ModelStatistics, duration: SummarizedDuration, wanted: Sequence[float]
) -> Series:
    found = tuple(zip(wanted, duration.summary.quantiles(wanted), strict=True))
    total = duration.ns // 1000
    return Series(model_labels(model), total, count=duration.count, quantiles=found)
