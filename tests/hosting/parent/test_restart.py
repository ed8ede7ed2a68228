"""`RestartPolicy`: how long to wait, and when to give up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.hosting.parent.process import RestartPolicy


def test_first_failure_is_followed_by_a_restart_at_once() -> None:
    assert RestartPolicy().failed(100.0) == 0.0


def test_delay_doubles_with_each_failure_in_the_window() -> None:
    policy = RestartPolicy(limit=9, first_delay=0.1, longest_delay=1.0)
    delays = [policy.failed(float(now)) for now in range(7)]
    assert delays == [0.0, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_as_many_failures_as_the_limit_are_the_end() -> None:
    policy = RestartPolicy(limit=3, window=60.0)
    assert [policy.failed(now) for now in (0.0, 30.0, 59.0)] == [0.0, 0.1, None]


def test_failures_are_forgotten_after_the_window() -> None:
    policy = RestartPolicy(limit=3, window=60.0)
    assert [policy.failed(now) for now in (0.0, 30.0, 60.1, 120.2)] == [0.0, 0.1, 0.1, 0.0]


@given(st.lists(st.integers(0, 100), max_size=30), st.integers(1, 6))
def test_never_more_restarts_in_a_window_than_the_limit_allows(
    pauses: list[int], limit: int
) -> None:
    policy, now, restarts = RestartPolicy(limit=limit), 0.0, list[float]()
    for pause in pauses:
        now += pause
        if policy.failed(now) is not None:
            restarts.append(now)
    for start in restarts:
        assert sum(start <= other <= start + policy.window for other in restarts) < limit
