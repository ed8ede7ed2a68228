"""Events that may come often are logged once a minute, with their number."""

from __future__ import annotations

from penstock.core.log_throttle import LogThrottle


def test_events_are_logged_once_a_minute_and_all_counted() -> None:
    throttle = LogThrottle()
    logged = [second for second in range(0, 200, 5) if throttle.add(1000.0 + second)]
    assert logged == [0, 60, 120, 180]
    assert throttle.count == 40


def test_reset_does_not_shorten_the_minute() -> None:
    throttle = LogThrottle()
    assert throttle.add(1000.0)
    throttle.reset()
    assert throttle.count == 0
    assert not throttle.add(1059.0)
    assert throttle.add(1060.0)
