"""What a server has left once it was asked to stop."""

from __future__ import annotations

import time

from penstock.core.countdown import Countdown


def test_a_countdown_runs_from_the_first_look() -> None:
    countdown = Countdown(0.2)
    time.sleep(0.1)
    assert countdown.left() > 0.15


def test_a_countdown_that_was_started_runs_and_ends_at_zero() -> None:
    countdown = Countdown(0.02)
    countdown.start()
    time.sleep(0.03)
    assert countdown.left() == 0.0


def test_starting_again_gives_no_more_time() -> None:
    countdown = Countdown(0.05)
    countdown.start()
    time.sleep(0.03)
    countdown.start()
    assert countdown.left() < 0.04
