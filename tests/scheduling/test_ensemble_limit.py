"""How many calls of a step run at a time."""

from __future__ import annotations

import pytest

from penstock.scheduling.ensemble_limit import StepLimit

pytestmark = pytest.mark.contract("E-11")


def test_calls_beyond_the_limit_wait_in_order() -> None:
    limit, started = StepLimit(1), list[str]()

    def start(name: str) -> bool:
        started.append(name)
        return True

    assert limit.enter(lambda: start("a"))
    assert not limit.enter(lambda: start("b"))
    assert not limit.enter(lambda: start("c"))
    limit.leave()
    assert started == ["b"]
    limit.leave()
    assert started == ["b", "c"]


def test_a_call_that_nobody_wants_any_more_takes_no_place() -> None:
    limit, asked = StepLimit(1), list[str]()

    def start(name: str, wanted: bool) -> bool:
        asked.append(name)
        return wanted

    limit.enter(lambda: True)
    limit.enter(lambda: start("b", wanted=False))
    limit.enter(lambda: start("c", wanted=True))
    limit.enter(lambda: start("d", wanted=True))
    limit.leave()
    assert asked == ["b", "c"]


def test_a_place_that_nobody_waits_for_is_free_again() -> None:
    limit = StepLimit(1)
    limit.enter(lambda: True)
    limit.leave()
    assert limit.enter(lambda: True)
