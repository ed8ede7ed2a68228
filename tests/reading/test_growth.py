"""Increases of counters, which start over when a model or its server does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock_client.reading.counters import BatchCounts, CacheCounts, Durations, ModelCounters
from penstock_client.reading.growth import (
    Growth,
    batch_growth,
    growth,
    increase,
    increases,
    mean,
    quantile,
)

_COUNT = st.integers(0, 10**9).map(float)
_DURATIONS = st.builds(Durations, _COUNT, _COUNT, _COUNT, _COUNT, _COUNT)
_COUNTERS = st.builds(
    ModelCounters,
    success=_COUNT,
    inferences=_COUNT,
    executions=_COUNT,
    failures=st.dictionaries(st.sampled_from(["BACKEND", "CANCELED"]), _COUNT),
    durations=st.none() | _DURATIONS,
    cache=st.none() | st.builds(CacheCounts, _COUNT, _COUNT),
    engine=st.dictionaries(st.sampled_from(["tokens_total", "running"]), _COUNT),
    histograms=st.dictionaries(
        st.just("penstock_batch_size"),
        st.dictionaries(st.sampled_from([1.0, 2.0, inf]), _COUNT),
    ),
)


def _numbers(found: Growth) -> list[float]:
    took = found.durations or Durations()
    cache = found.cache or CacheCounts()
    return [
        *(found.success, found.inferences, found.executions, took.request, took.queue),
        *(cache.hits, cache.misses, *found.failures.values(), *found.engine.values()),
        *(count for buckets in found.histograms.values() for count in buckets.values()),
    ]


@given(_COUNTERS, _COUNTERS)
def test_nothing_ever_grows_by_less_than_nothing(before: ModelCounters, now: ModelCounters) -> None:
    assert min(_numbers(growth(before, now, 1.0))) >= 0


@given(_COUNTERS)
def test_what_counts_on_from_nothing_grows_by_what_it_has(now: ModelCounters) -> None:
    found = growth(ModelCounters(), now, 2.0)
    assert (found.success, found.durations, found.failures) == (
        now.success,
        now.durations,
        now.failures,
    )


@given(_COUNTERS, st.integers(1, 1000))
def test_a_server_that_started_again_has_done_what_it_counts(
    before: ModelCounters, done: int
) -> None:
    """Also where it has counted more of something than before."""
    before = replace(before, success=before.success + done + 1)
    now = ModelCounters(
        success=done, inferences=10.0**10, executions=1, durations=Durations(request=10.0**10)
    )
    found = growth(before, now, 1.0)
    assert (found.success, found.inferences, found.executions) == (done, 10.0**10, 1)
    assert found.durations == now.durations


def test_an_engine_starts_over_alone() -> None:
    """Its process died; the model counts on."""
    before = ModelCounters(success=5, engine={"tokens_total": 100})
    found = growth(before, ModelCounters(success=7, engine={"tokens_total": 30}), 1.0)
    assert (found.success, found.engine) == (2, {"tokens_total": 30})


@given(_COUNT, _COUNT)
def test_an_increase_is_what_was_counted_since(before: float, now: float) -> None:
    assert increase(before, now) == (now - before if now >= before else now)


def test_batches_grow_by_size() -> None:
    before = {1: BatchCounts(10, 1.0, 2.0, 3.0)}
    now = {1: BatchCounts(12, 1.5, 2.0, 3.0), 4: BatchCounts(1, 0.1, 0.1, 0.1)}
    assert batch_growth(before, now) == {
        1: BatchCounts(2, 0.5, 0, 0),
        4: BatchCounts(1, 0.1, 0.1, 0.1),
    }


def test_a_histogram_starts_over_as_a_whole() -> None:
    before = {1.0: 5.0, inf: 9.0}
    assert increases(before, {1.0: 6.0, inf: 9.0}) == {1.0: 1.0, inf: 0.0}
    assert increases(before, {1.0: 1.0, inf: 9.5}) == {1.0: 1.0, inf: 9.5}


def test_an_average_of_nothing_is_unknown() -> None:
    assert mean(0.0, 0.0) is None
    assert mean(3.0, 2.0) == 1.5


@pytest.mark.parametrize(
    ("buckets", "share", "value"),
    [
        ({1.0: 0, 2.0: 10, inf: 10}, 0.5, 1.5),
        ({1.0: 10, inf: 10}, 0.5, 0.5),
        ({1.0: 5, inf: 10}, 0.9, 1.0),
        ({1.0: 0, inf: 0}, 0.5, None),
        ({}, 0.5, None),
        ({inf: 4}, 0.5, 0.0),
    ],
)
def test_quantiles_are_as_prometheus_estimates_them(
    buckets: dict[float, float], share: float, value: float | None
) -> None:
    assert quantile(buckets, share) == value


_BUCKETS = st.lists(st.tuples(st.floats(0.001, 1e6), st.integers(0, 50)), min_size=1, max_size=8)


def _cumulative(counts: list[tuple[float, int]]) -> Mapping[float, float]:
    total, found = 0.0, {}
    for bound, count in sorted(dict(counts).items()):
        total += count
        found[bound] = total
    return {**found, inf: total}


@given(_BUCKETS, st.floats(0, 1), st.floats(0, 1))
@example([(762601.4936183912, 11)], 0.0, 1.0)
@example([(0.1, 1), (0.7, 3)], 0.0, 1.0)
def test_quantiles_rise_and_stay_inside_of_the_bounds(
    counts: list[tuple[float, int]], one: float, other: float
) -> None:
    buckets = _cumulative(counts)
    low, high = (quantile(buckets, share) for share in sorted((one, other)))
    if low is None or high is None:
        assert buckets[inf] == 0
        return
    assert 0 <= low <= high * (1 + 1e-9)
    assert high <= max(bound for bound in buckets if bound != inf)


@pytest.mark.parametrize(
    ("wanted", "value"),
    [(0.0, 0.0), (0.1, 0.5), (0.2, 1.0), (0.35, 1.5), (0.5, 2.0), (0.9, 2.0), (1.0, 2.0)],
)
def test_a_quantile_lies_within_its_bucket_as_prometheus_has_it(
    wanted: float, value: float
) -> None:
    buckets = {1.0: 2.0, 2.0: 5.0, 4.0: 5.0, inf: 10.0}
    found = quantile(buckets, wanted)
    assert found == pytest.approx(4.0 if wanted > 0.5 else value)


def test_without_an_observation_there_is_no_quantile() -> None:
    assert quantile({}, 0.5) is None
    assert quantile({1.0: 0.0, inf: 0.0}, 0.5) is None
    assert (mean(3.0, 2.0), mean(3.0, 0.0)) == (1.5, None)


def test_buckets_start_over_together() -> None:
    assert increases({1.0: 2.0, 2.0: 4.0}, {1.0: 3.0, 2.0: 9.0}) == {1.0: 1.0, 2.0: 5.0}
    assert increases({1.0: 2.0, 2.0: 4.0}, {1.0: 1.0, 2.0: 9.0}) == {1.0: 1.0, 2.0: 9.0}
    assert increases({}, {1.0: 3.0}) == {1.0: 3.0}
    assert [increase(*pair) for pair in ((2, 5), (5, 5), (5, 2))] == [3, 0, 2]
