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
class Exemplar:
    """An observation of a traced request: its trace id, value, and seconds since the epoch."""

    trace_id: str
    value: float
    timestamp: float


@dataclass(frozen=True, slots=True)
class Series:
    """A sample of one metric. For histograms and summaries `value` is the sum of observations.

    `buckets` are upper bounds with the cumulative count of observations, the last bound `inf`;
    `quantiles` are quantiles (0 to 1) with their values, `count` a summary's observations.
    `exemplars` has one for each bucket, or is empty; only OpenMetrics can show them.
    """

    labels: Labels
    value: float
    buckets: tuple[tuple[float, int], ...] = ()
    quantiles: tuple[tuple[float, float], ...] = ()
    count: int = 0
    exemplars: tuple[Exemplar | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """A sample of the metrics of one name; the series may be made when they are asked for."""

    name: str
    description: str
    kind: MetricKind
    series: Iterable[Series]


def render(families: Iterable[Family]) -> str:
    """Render the families in Prometheus text format 0.0.4, each with HELP and TYPE lines."""
    return "".join(pieces(families))


def pieces(families: Iterable[Family]) -> Iterator[str]:
    """The text of the families, one series at a time; a family without any is left out."""
    texts = _Texts()
    for family in families:
        name, kind = family.name, family.kind
        head = (
            f"# HELP {name} {family.description.translate(_ESCAPES_IN_HELP)}\n"
            f"# TYPE {name} {kind.name.lower()}\n"
        )
        for series in family.series:
            yield head + _sample(name, kind, series, texts)
            head = ""


class _Texts:
    """The texts of labels and bounds, which repeat all over a page."""

    __slots__ = ("_bounds", "_labels")

    def __init__(self) -> None:
        self._labels: dict[Labels, str] = {}
        self._bounds: dict[float, str] = {}

    def labels(self, labels: Labels) -> str:
        """The labels without braces."""
        text = self._labels.get(labels)
        if text is None:
            pairs = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels]
            text = self._labels[labels] = ",".join(pairs)
        return text

    def bound(self, bound: float) -> str:
        text = self._bounds.get(bound)
        if text is None:
            text = self._bounds[bound] = number_text(bound)
        return text


def _sample(name: str, kind: MetricKind, series: Series, texts: _Texts) -> str:
    labels = texts.labels(series.labels)
    if kind is MetricKind.HISTOGRAM:
        return _histogram(name, series, labels, texts)
    if kind is MetricKind.SUMMARY:
        return _summary(name, series, labels, texts)
    return f"{name}{_braced(labels)} {number_text(series.value)}\n"


def _histogram(name: str, series: Series, labels: str, texts: _Texts) -> str:
    start = f'{name}_bucket{{{labels}{"," if labels else ""}le="'
    lines = [f'{start}{texts.bound(bound)}"}} {total}\n' for bound, total in series.buckets]
    braced = _braced(labels)
    lines.append(f"{name}_sum{braced} {number_text(series.value)}\n")
    lines.append(f"{name}_count{braced} {series.buckets[-1][1]}\n")
    return "".join(lines)


def _summary(name: str, series: Series, labels: str, texts: _Texts) -> str:
    braced = _braced(labels)
    start = f'{name}{{{labels}{"," if labels else ""}quantile="'
    lines = [
        f"{name}_count{braced} {series.count}\n",
        f"{name}_sum{braced} {number_text(series.value)}\n",
    ]
    lines += [f'{start}{texts.bound(q)}"}} {number_text(value)}\n' for q, value in series.quantiles]
    return "".join(lines)


_ESCAPES_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def number_text(value: float) -> str:
    """The shortest text that parses to the same number; whole numbers without a fraction."""
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value)).removesuffix(".0")
