"""Families of the metrics page that are the server's own: traces, access, certificates, sources,
residency, releases and model processes. Triton has none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from pathlib import Path

from penstock.metrics.exposition import Family, MetricKind, Series
from penstock.models.releases.alias import Cause
from penstock.models.releases.releases import Releases
from penstock.models.releases.shadow import Outcome
from penstock.models.remote.remote_repositories import RemoteRepositories
from penstock.models.residency.residency import ModelResidency
from penstock.models.serving.answers import InstanceProcess
from penstock.system.certificates import ServerCertificates
from penstock.system.machine import resident_bytes
from penstock.tracing.export import ExportCounts

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


def repository_families(remote: RemoteRepositories | None, missing: int | None) -> Iterator[Family]:
    """The families of repositories that lie elsewhere, and of those that are `missing`.

    Nothing is told of what is `None`, nor of buckets where none was named.
    """
    if missing is not None:
        yield Family(
            "penstock_repository_missing",
            "Repositories that could not be read since the start",
            MetricKind.GAUGE,
            [Series((), missing)],
        )
    if remote is None or not remote.used:
        return
    traffic = remote.traffic
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


def _process_labels(one: InstanceProcess) -> tuple[tuple[str, str], ...]:
    return (("model", one.model), ("model_instance", one.instance), ("version", one.version))
