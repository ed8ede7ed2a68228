"""The metrics page as OpenMetrics 1.0, written by `prometheus-client`.

OpenMetrics wants the names of counters to end with `_total`, which those of Triton do not. They are
therefore of the type `unknown` there, so that a Prometheus, which asks for this form first, stores
them under the names that dashboards know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from prometheus_client.core import Exemplar, Metric
from prometheus_client.openmetrics.exposition import ALLOWUTF8, generate_latest

from penstock.metrics.exposition import Exemplar as TracedObservation
from penstock.metrics.exposition import Family, Labels, MetricKind, Series, number_text

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
END = "# EOF\n"

_TOTAL = "_total"
_Key = tuple[str, Labels, tuple[float, ...]]


class OpenMetricsWriter:
    """Writes pages, and keeps the beginnings of the last one's lines: names with their labels.

    `prometheus-client` takes ten microseconds for a line, nearly all for what is the same in each
    scrape. Pages may be written at the same time, in turns.
    """

    def __init__(self) -> None:
        self._starts: dict[_Key, tuple[str, ...]] = {}

    def pieces(self, families: Iterable[Family]) -> Iterator[str]:
        """The text without its end, one series at a time; a family without any is left out."""
        starts: dict[_Key, tuple[str, ...]] = {}
        seen: set[str] = set()
        for family in families:
            name, kind = _name_and_type(family, seen)
            seen.add(name)
            head = metric_text(Metric(name, family.description, kind))
            for series in family.series:
                yield head + self._text(family, series, starts)
                head = ""
        self._starts = starts

    def _text(self, family: Family, series: Series, starts: dict[_Key, tuple[str, ...]]) -> str:
        if series.exemplars:
            return _lines(family, series)
        if family.kind in (MetricKind.COUNTER, MetricKind.GAUGE):
            key: _Key = (family.name, series.labels, ())
            start = self._starts.get(key) or _starts(family, series)
            starts[key] = start
            return f"{start[0]} {number_text(series.value)}\n"
        return self._distribution(family, series, starts)

    def _distribution(
        self, family: Family, series: Series, starts: dict[_Key, tuple[str, ...]]
    ) -> str:
        points = series.buckets or series.quantiles
        key: _Key = (family.name, series.labels, tuple([point for point, _ in points]))
        start = self._starts.get(key) or _starts(family, series)
        starts[key] = start
        values = [value for _, value in points]
        values += (series.value, series.buckets[-1][1] if series.buckets else series.count)
        return "".join(
            # A histogram of what may be negative has fewer lines than values.
            [f"{each} {number_text(value)}\n" for each, value in zip(start, values, strict=False)]
        )


class Collected:
    """What `prometheus-client` renders: it asks a registry for its metrics."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def metric_text(metric: Metric) -> str:
    """One metric with its header, without the end of the page."""
    # Its other ways to escape look at each character of each name; ours need no escapes.
    text: bytes = generate_latest(Collected(metric), ALLOWUTF8)
    return text.decode().removesuffix(END)


def _starts(family: Family, series: Series) -> tuple[str, ...]:
    """The lines of a series up to their values."""
    lines = _lines(family, series).removesuffix("\n").split("\n")
    return tuple([line.rpartition(" ")[0] for line in lines])


def _lines(family: Family, series: Series) -> str:
    name, labels = family.name, dict(series.labels)
    metric = Metric(
        name, "", "unknown" if family.kind is MetricKind.COUNTER else family.kind.name.lower()
    )
    if family.kind is MetricKind.HISTOGRAM:
        _add_histogram(metric, name, labels, series)
    elif family.kind is MetricKind.SUMMARY:
        for quantile, value in series.quantiles:
            metric.add_sample(name, {**labels, "quantile": str(float(quantile))}, value)
        metric.add_sample(f"{name}_sum", labels, series.value)
        metric.add_sample(f"{name}_count", labels, series.count)
    else:
        metric.add_sample(name, labels, series.value)
    return metric_text(metric).split("\n", 2)[2]  # without HELP and TYPE


def _add_histogram(metric: Metric, name: str, labels: dict[str, str], series: Series) -> None:
    exemplars = series.exemplars or (None,) * len(series.buckets)
    for (bound, total), exemplar in zip(series.buckets, exemplars, strict=True):
        bucket = {**labels, "le": "+Inf" if bound == inf else str(float(bound))}
        metric.add_sample(f"{name}_bucket", bucket, total, exemplar=_exemplar(exemplar))
    if series.buckets[0][0] >= 0:  # sums of what may be negative are not allowed there
        metric.add_sample(f"{name}_sum", labels, series.value)
        metric.add_sample(f"{name}_count", labels, series.buckets[-1][1])


def _exemplar(found: TracedObservation | None) -> Exemplar | None:
    if found is None:
        return None
    return Exemplar({"trace_id": found.trace_id}, found.value, found.timestamp)


def _name_and_type(family: Family, seen: set[str]) -> tuple[str, str]:
    """The name of the family, which of counters is without their suffix."""
    if family.kind is not MetricKind.COUNTER:
        return family.name, family.kind.name.lower()
    base = family.name.removesuffix(_TOTAL)
    if base == family.name or base in seen:
        return family.name, "unknown"
    return base, "counter"


def prefers_openmetrics(accept: str) -> bool:
    """Whether an `Accept` header prefers OpenMetrics 1.0 to plain text (RFC 9110, 12.5.1).

    Where both are alike it is OpenMetrics: a client that names it reads it. `*/*` does not name it.
    """
    wanted = plain = 0.0
    for entry in accept.lower().split(","):
        kind, *rest = (part.strip() for part in entry.split(";"))
        parameters = dict(parameter.partition("=")[::2] for parameter in rest)
        quality = _quality(parameters.get("q", "1"))
        version = parameters.get("version", "1.0.0").strip('"')
        if kind == "application/openmetrics-text" and version in ("1.0.0", "0.0.1"):
            wanted = max(wanted, quality)
        elif kind == "text/plain":
            plain = max(plain, quality)
    return wanted > 0 and wanted >= plain


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
