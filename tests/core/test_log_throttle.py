"""What repeats itself without limit does not fill the log, and is counted."""

from __future__ import annotations

import logging
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.log.log_throttle import RepeatThrottle, log_fault, repeat_note

logger = logging.getLogger("penstock.test")


def test_a_burst_is_logged_and_then_a_line_a_minute_with_the_number_left_out() -> None:
    throttle = RepeatThrottle(burst=3)
    storm = [throttle.admit("k", float(second)) for second in range(130)]
    logged = {second: left for second, left in enumerate(storm) if left is not None}
    assert logged == {0: 0, 1: 0, 2: 0, 60: 57, 120: 59}


def test_after_a_quiet_minute_there_is_a_new_burst() -> None:
    throttle = RepeatThrottle(burst=3)
    assert [throttle.admit("k", 0.0) for _ in range(3)] == [0, 0, 0]
    assert [throttle.admit("k", 100.0) for _ in range(4)] == [0, 0, 0, None]


def test_kinds_are_apart_and_bounded() -> None:
    throttle = RepeatThrottle(burst=1)
    assert [throttle.admit(kind, 0.0) for kind in range(10_000)] == [0] * 10_000
    assert len(throttle._kinds) <= 256


@given(st.lists(st.floats(0, 50), max_size=200))
def test_nothing_is_lost_uncounted(pauses: list[float]) -> None:
    throttle, now, logged, told = RepeatThrottle(burst=2), 0.0, 0, 0
    for pause in pauses:
        now += pause
        left = throttle.admit("k", now)
        if left is not None:
            logged, told = logged + 1, told + left
    pending = throttle._kinds["k"].left_out if pauses else 0
    assert logged + told + pending == len(pauses)


def test_a_fault_that_repeats_itself_is_logged_a_few_times(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(100):
        try:
            raise ValueError("broken")
        except ValueError as error:
            log_fault(logger, error, "%s failed", "ModelInfer", extra={"request_id": "r"})
    try:
        raise KeyError("another")
    except KeyError as error:
        log_fault(logger, error, "%s failed", "ModelInfer")
    assert [one.getMessage() for one in caplog.records] == ["ModelInfer failed"] * 11
    assert caplog.text.count("ValueError: broken") == 10
    assert caplog.records[0].filename == "test_log_throttle.py"
    assert caplog.records[0].__dict__["request_id"] == "r"


def test_a_line_tells_how_many_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert [repeat_note("a kind") for _ in range(12)] == [""] * 10 + [None] * 2
    now = 61.0
    assert repeat_note("a kind") == " (lines like this that are missing before it: 2)"
