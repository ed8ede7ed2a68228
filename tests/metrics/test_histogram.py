"""Histograms and their exemplars."""

from __future__ import annotations

from math import inf

from penstock.metrics.histogram import Histogram


def test_observations_count_up_to_each_bound() -> None:
    histogram = Histogram((0.1, 1.0))
    for number in (0.1, 0.5, 7.0):
        histogram.observe(number)
    assert histogram.buckets == ((0.1, 1), (1.0, 2), (inf, 3))
    assert histogram.total == 7.6


def test_without_traces_there_are_no_exemplars() -> None:
    histogram = Histogram((0.1,))
    histogram.observe(0.5)
    assert histogram.exemplars == ()


def test_a_bucket_keeps_its_last_traced_observation() -> None:
    histogram = Histogram((0.1, 1.0))
    histogram.observe(0.5, "a" * 32)
    histogram.observe(0.7, "b" * 32)
    histogram.observe(0.9)
    none, kept, no_more = histogram.exemplars
    assert none is no_more is None
    assert kept is not None
    assert (kept.trace_id, kept.value) == ("b" * 32, 0.7)
    assert kept.timestamp > 1.6e9


def test_histograms_are_added_up_from_their_states() -> None:
    first, second = Histogram((0.1, 1.0)), Histogram((0.1, 1.0))
    first.observe(0.05, "a" * 32)
    second.observe(0.5, "b" * 32)
    merged = Histogram.merged([first.state(), second.state()])
    assert merged.buckets == ((0.1, 1), (1.0, 2), (inf, 2))
    assert merged.total == 0.55
    assert [one and one.trace_id for one in merged.exemplars] == ["a" * 32, "b" * 32, None]


def test_histograms_with_other_bounds_are_not_added_up() -> None:
    first, second = Histogram((0.1,)), Histogram((0.2,))
    second.observe(0.15)
    assert Histogram.merged([first.state(), second.state()]).buckets == ((0.1, 0), (inf, 0))
