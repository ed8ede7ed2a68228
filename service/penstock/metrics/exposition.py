"""Prometheus exposition: metric families as values, and their text in format 0.0.4."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum


class MetricKind(IntEnum):
    """The type of a metric; the numbers are those of `pb_utils.MetricFamily`.

    Custom metrics cannot be summaries.
    """

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2
    SUMMARY = 3


Labels = tuple[tuple[str, str], ...]
"""Label names and values, sorted by name."""


@dataclass(frozen=True, slots=True)
class Series:
    """A sample of one metric. For histograms and summaries `value` is the sum of observations.

    `buckets` are upper bounds with the cumulative count of observations, the last bound `inf`;
    `quantiles` are quantiles (0 to 1) with their values, `count` a summary's observations.
    """

    labels: Labels
    value: float
    buckets: tuple[tuple[float, int], ...] = ()
    quantiles: tuple[tuple[float, float], ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True)
class Family:
    """A sample of the metrics of one name."""

    name: str
    description: str
    kind: MetricKind
    series: tuple[Series, ...]


def render(families: Iterable[Family]) -> str:
    """Render the families in Prometheus text format 0.0.4, each with HELP and TYPE lines."""
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    name = family.name
    yield f"# HELP {name} {family.description.translate(_ESCAPES_IN_HELP)}"
    yield f"# TYPE {name} {family.kind.name.lower()}"
    for series in family.series:
        yield from _SAMPLES[family.kind](name, series)


def _number_sample(name: str, series: Series) -> Iterator[str]:
    yield f"{name}{_braced(series.labels)} {_number(series.value)}"


def _histogram_samples(name: str, series: Series) -> Iterator[str]:
    labels = series.labels
    for bound, total in series.buckets:
        yield f"{name}_bucket{_braced((*labels, ('le', _number(bound))))} {total}"
    yield f"{name}_sum{_braced(labels)} {_number(series.value)}"
    yield f"{name}_count{_braced(labels)} {series.buckets[-1][1]}"


def _summary_samples(name: str, series: Series) -> Iterator[str]:
    labels = series.labels
    yield f"{name}_count{_braced(labels)} {series.count}"
    yield f"{name}_sum{_braced(labels)} {_number(series.value)}"
    for quantile, value in series.quantiles:
        yield f"{name}{_braced((*labels, ('quantile', _number(quantile))))} {_number(value)}"


_SAMPLES = {
    MetricKind.COUNTER: _number_sample,
    MetricKind.GAUGE: _number_sample,
    MetricKind.HISTOGRAM: _histogram_samples,
    MetricKind.SUMMARY: _summary_samples,
}


_ESCAPES_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def _braced(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels)
    return "{" + ",".join(pairs) + "}"


def _number(value: float) -> str:
    """The shortest text that parses to the same number; whole numbers without a fraction."""
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value)).removesuffix(".0")
