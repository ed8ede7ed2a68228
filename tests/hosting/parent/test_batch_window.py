"""How many batches a process may have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.hosting.parent.in_flight import BatchWindow

QUICK, SLOW = 1_000, 1_000_000_000


def size(window: BatchWindow) -> int:
    return next(count for count in range(100) if not count < window.size)


def test_quick_executions_open_the_window_step_by_step() -> None:
    window = BatchWindow(serial=True, most=3)
    sizes = [size(window)]
    for _ in range(3):
        window.executed(QUICK)
        sizes.append(size(window))
    assert sizes == [1, 2, 3, 3]


def test_slow_execution_closes_it() -> None:
    window = BatchWindow(serial=True, most=3)
    window.executed(QUICK)
    window.executed(SLOW)
    assert size(window) == 1


def test_another_process_begins_with_one() -> None:
    window = BatchWindow(serial=True, most=3)
    window.executed(QUICK)
    window.reset()
    assert size(window) == 1


@given(st.integers(1, 5), st.lists(st.integers(0, 10_000_000)))
def test_a_process_has_room_for_one_batch_and_never_for_more_than_most(
    most: int, durations: list[int]
) -> None:
    window = BatchWindow(serial=True, most=most)
    for duration in durations:
        window.executed(duration)
        assert 1 <= size(window) <= most


def test_a_process_that_overlaps_batches_has_room_for_any_number() -> None:
    window = BatchWindow(serial=False, most=1)
    window.executed(SLOW)
    assert window.size > 1_000_000
