"""Metrics that backends report about their engines, under the engines' own names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from penstock.metrics.exposition import Family, Labels, MetricKind, Series
from penstock.metrics.language_model import (
    LANGUAGE_MODEL_METRICS,
    TRITON_VLLM_METRICS,
    VLLM_NAMES,
)
from penstock.models.serving.answers import EngineHistogram, EngineMetric, Gauge

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


def _labels(one: EngineMetric) -> Labels:
    """Each label once, whatever the backend has named its own."""
    own = {name: value for name, value in one.labels if name not in _TAKEN}
    return (*own.items(), ("model", one.model), ("version", one.version))


def _number(one: Gauge) -> Series:
    return Series(_labels(one), one.value)


def _distribution(one: EngineHistogram) -> Series:
    histogram = one.histogram
    return Series(_labels(one), histogram.total, histogram.buckets, exemplars=histogram.exemplars)
