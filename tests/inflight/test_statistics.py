"""Statistics: counts, durations, and requests in flight."""

from __future__ import annotations

from penstock.inflight.statistics import Duration, Statistics


def test_a_duration_counts_and_sums() -> None:
    duration = Duration()
    duration.add(5)
    duration.add(7, count=2)
    assert (duration.count, duration.ns) == (3, 12)


def test_an_execution_is_counted_once_and_by_its_batch_size() -> None:
    statistics = Statistics()
    for rows, times in ((4, (1, 2, 3)), (1, (10, 20, 30)), (4, (4, 5, 6))):
        statistics.executed(rows, *times)
    batch = statistics.batches[4]
    assert (statistics.execution_count, sorted(statistics.batches)) == (3, [1, 4])
    assert (batch.compute_input, batch.compute_infer) == (Duration(2, 5), Duration(2, 7))
    assert batch.compute_output == Duration(2, 9)


def test_a_request_is_pending_and_in_flight_from_its_admission() -> None:
    statistics = Statistics()
    statistics.entered()
    assert (statistics.pending, statistics.in_flight) == (1, 1)


def test_whoever_waits_for_quiet_is_called_at_once_when_it_is_quiet() -> None:
    calls: list[str] = []
    Statistics().watch_idle(lambda: calls.append("idle"))
    assert calls == ["idle"]


def test_whoever_waits_for_quiet_is_called_when_the_last_request_left() -> None:
    statistics, calls = Statistics(), []
    statistics.entered()
    statistics.entered()
    statistics.watch_idle(lambda: calls.append("idle"))
    statistics.left()
    assert calls == []
    statistics.left()
    assert calls == ["idle"]


def test_counters_of_two_models_are_apart() -> None:
    first, second = Statistics(), Statistics()
    first.executed(1, 0, 0, 0)
    first.success.add(1)
    assert second == Statistics()
