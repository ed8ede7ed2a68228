"""The registry of models' custom metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.core.errors import InvalidRequestError, UnsupportedError
from penstock.metrics.custom import CustomMetrics, refusal
from penstock.metrics.exposition import MetricKind, Series

COUNTER, GAUGE, HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM


class Owner:
    """One instance and what it asks for."""

    def __init__(self, metrics: CustomMetrics, name: str) -> None:
        self.metrics = metrics
        self.name = name

    def do(self, operation: str, *arguments: Any) -> Any:
        return self.metrics.apply(self.name, operation, arguments)

    def make(
        self,
        kind: MetricKind,
        name: str = "n",
        buckets: Sequence[float] | None = None,
        **labels: str,
    ) -> int:
        """The handle of a metric in a family of its own."""
        family = self.do("family", name, "what it is", int(kind))
        handle: int = self.do("create", family, labels, buckets)
        return handle


@pytest.fixture
def metrics() -> CustomMetrics:
    return CustomMetrics(reserved=("nv_inference_count",))


@pytest.fixture
def model(metrics: CustomMetrics) -> Owner:
    return Owner(metrics, "m_0_0")


def values(metrics: CustomMetrics) -> dict[str, list[float]]:
    """Values of all series by family."""
    return {f.name: [s.value for s in f.series] for f in metrics.snapshot()}


@pytest.mark.contract("ME-29")
def test_counter_adds_up(model: Owner) -> None:
    handle = model.make(COUNTER)
    model.do("increment", handle, 2.0)
    model.do("increment", handle, 0.5)
    assert model.do("value", handle) == 2.5


@pytest.mark.contract("ME-29")
def test_gauge_goes_both_ways(model: Owner) -> None:
    handle = model.make(GAUGE)
    model.do("set", handle, 5.0)
    model.do("increment", handle, -2.0)
    assert model.do("value", handle) == 3.0


def test_histogram_counts_up_to_each_bound(metrics: CustomMetrics, model: Owner) -> None:
    handle = model.make(HISTOGRAM, buckets=[0.1, 1.0, 10.0])
    for number in (0.05, 0.1, 0.5, 5.0, 50.0):
        model.do("observe", handle, number)
    buckets = ((0.1, 2), (1.0, 3), (10.0, 4), (math.inf, 5))
    assert metrics.snapshot()[0].series == (Series((), 55.65, buckets),)


def test_histogram_has_the_infinite_bound_once(metrics: CustomMetrics, model: Owner) -> None:
    model.make(HISTOGRAM, buckets=[1.0, math.inf])
    (series,) = metrics.snapshot()[0].series
    assert series.buckets == ((1.0, 0), (math.inf, 0))


@pytest.mark.parametrize("bounds", [[3.0, 1.0], [1.0, 1.0], [math.nan], [1.0, math.nan]])
def test_bounds_must_rise(model: Owner, bounds: list[float]) -> None:
    with pytest.raises(InvalidRequestError, match=r"^Bucket Boundaries must be strictly sorted$"):
        model.make(HISTOGRAM, buckets=bounds)


def test_same_name_and_labels_is_one_number(metrics: CustomMetrics) -> None:
    first, second = Owner(metrics, "m_0_0"), Owner(metrics, "m_0_1")
    first.do("increment", first.make(COUNTER, model="m"), 1.0)
    shared = second.make(COUNTER, model="m")
    second.do("increment", shared, 2.0)
    assert second.do("value", shared) == 3.0
    assert values(metrics) == {"n": [3.0]}


def test_order_of_labels_does_not_matter(metrics: CustomMetrics, model: Owner) -> None:
    model.make(GAUGE, b="2", a="1")
    model.make(GAUGE, a="1", b="2")
    assert [series.labels for series in metrics.snapshot()[0].series] == [(("a", "1"), ("b", "2"))]


def test_other_labels_are_another_number(metrics: CustomMetrics, model: Owner) -> None:
    model.do("set", model.make(GAUGE, user="a"), 1.0)
    model.do("set", model.make(GAUGE, user="b"), 2.0)
    assert values(metrics) == {"n": [1.0, 2.0]}


@pytest.mark.contract("ME-31")
def test_a_name_has_one_kind(model: Owner) -> None:
    model.make(GAUGE)
    with pytest.raises(InvalidRequestError, match="Family name already exists with different type"):
        model.make(COUNTER)


def test_first_description_stays(metrics: CustomMetrics, model: Owner) -> None:
    """As in Triton, which takes the second without a word."""
    model.make(GAUGE)
    family = model.do("family", "n", "something else", int(GAUGE))
    model.do("create", family, {"a": "b"}, None)
    assert [family.description for family in metrics.snapshot()] == ["what it is"]


def test_names_of_the_server_are_taken(model: Owner) -> None:
    with pytest.raises(InvalidRequestError, match="Family name already exists"):
        model.make(COUNTER, "nv_inference_count")


@pytest.mark.parametrize("name", ["", "bad name", "1st", "x{}"])
def test_a_name_must_fit_the_page(model: Owner, name: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be the name of a metric family"):
        model.make(GAUGE, name)


@pytest.mark.parametrize("label", ["", "bad-label", "__own", "1st"])
def test_a_label_must_fit_the_page(model: Owner, label: str) -> None:
    family = model.do("family", "n", "", int(GAUGE))
    with pytest.raises(InvalidRequestError, match="cannot be the name of a label"):
        model.do("create", family, {label: "x"}, None)


def test_le_is_the_histograms_own_label(model: Owner) -> None:
    model.make(GAUGE, le="x")
    with pytest.raises(InvalidRequestError, match="'le' cannot be the name of a label"):
        model.make(HISTOGRAM, "h", [1.0], le="x")


def test_label_must_be_text(model: Owner) -> None:
    family = model.do("family", "n", "", int(GAUGE))
    with pytest.raises(InvalidRequestError, match="label 'a' must be a string, not 1"):
        model.do("create", family, {"a": 1}, None)


@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        (COUNTER, "set"),
        (COUNTER, "observe"),
        (GAUGE, "observe"),
        (HISTOGRAM, "increment"),
        (HISTOGRAM, "set"),
        (HISTOGRAM, "value"),
    ],
)
def test_kinds_refuse_unsupported_operations(kind: MetricKind, operation: str) -> None:
    expected = f"TRITONSERVER_METRIC_KIND_{kind.name} does not support {operation.capitalize()}"
    assert refusal(kind, operation) == expected


def test_counter_never_goes_down(model: Owner) -> None:
    handle = model.make(COUNTER)
    with pytest.raises(InvalidRequestError) as refused:
        model.do("increment", handle, -1.0)
    assert refused.value.message == (
        "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative"
        " values."
    )
    assert model.do("value", handle) == 0.0


def test_all_of_an_owner_goes_with_it(metrics: CustomMetrics, model: Owner) -> None:
    model.make(COUNTER)
    model.make(HISTOGRAM, "h", [1.0])
    metrics.remove(model.name)
    assert metrics.snapshot() == []


def test_shared_metric_stays_while_a_handle_is_left(metrics: CustomMetrics, model: Owner) -> None:
    other = Owner(metrics, "m_0_1")
    model.do("set", model.make(GAUGE), 7.0)
    kept = other.make(GAUGE)
    metrics.remove(model.name)
    assert other.do("value", kept) == 7.0
    metrics.remove(other.name)
    assert metrics.snapshot() == []


def test_unloaded_name_is_free_for_another_kind(metrics: CustomMetrics, model: Owner) -> None:
    model.make(GAUGE)
    metrics.remove(model.name)
    Owner(metrics, "other_0_0").make(COUNTER)
    assert [family.kind for family in metrics.snapshot()] == [COUNTER]


def test_removing_an_owner_without_metrics_does_nothing(metrics: CustomMetrics) -> None:
    metrics.remove("nobody")
    assert metrics.snapshot() == []


def test_deleted_family_takes_its_metrics_along(metrics: CustomMetrics, model: Owner) -> None:
    family = model.do("family", "n", "", int(GAUGE))
    handle = model.do("create", family, {}, None)
    model.do("delete", family)
    assert metrics.snapshot() == []
    with pytest.raises(InvalidRequestError, match="the corresponding 'MetricFamily' has been"):
        model.do("set", handle, 1.0)


def test_handles_of_others_are_out_of_reach(metrics: CustomMetrics, model: Owner) -> None:
    handle = model.make(GAUGE)
    with pytest.raises(InvalidRequestError, match="Invalid metric operation"):
        Owner(metrics, "stranger").do("set", handle, 1.0)


def test_family_without_metrics_is_not_shown(metrics: CustomMetrics, model: Owner) -> None:
    model.do("family", "n", "", int(GAUGE))
    assert metrics.snapshot() == []


def test_unknown_operation_is_refused(model: Owner) -> None:
    with pytest.raises(UnsupportedError, match="unknown metric operation 'reset'"):
        model.do("reset", 1)
