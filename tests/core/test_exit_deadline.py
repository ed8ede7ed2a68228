"""The time budget of a server that was asked to stop."""

from __future__ import annotations

import time

import pytest

from penstock.core.exit_deadline import ExitDeadline


class Clock:
    """A clock that stands still unless the test puts it forward."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_a_countdown_runs_from_the_first_look(clock: Clock) -> None:
    deadline = ExitDeadline(8.0)
    clock.now += 5.0
    assert deadline.left() == 8.0
    clock.now += 3.0
    assert deadline.left() == 5.0


def test_a_countdown_that_was_started_runs_and_ends_at_zero(clock: Clock) -> None:
    deadline = ExitDeadline(8.0)
    deadline.start()
    clock.now += 5.0
    assert deadline.left() == 3.0
    clock.now += 5.0
    assert deadline.left() == 0.0


def test_starting_again_gives_no_more_time(clock: Clock) -> None:
    deadline = ExitDeadline(8.0)
    deadline.start()
    clock.now += 3.0
    deadline.start()
    assert deadline.left() == 5.0


def test_an_exit_tells_what_it_waits_for_and_counts_what_it_cuts_off() -> None:
    deadline, open_calls = ExitDeadline(5.0), [2]
    deadline.waits_for("gRPC calls", lambda: open_calls[0])
    deadline.waits_for("connections", lambda: 0)
    told = [list(deadline.waiting()), deadline.started]
    open_calls[0] = 0
    deadline.start()
    told += [list(deadline.waiting()), deadline.started]
    assert told == [["gRPC calls: 2"], False, [], True]
    deadline.cut(2)
    deadline.cut(1)
    assert deadline.cut_off == 3
