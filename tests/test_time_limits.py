"""Waiting that never ends fails its test in time, and no other."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.time_limits import time_limit


async def _stuck() -> None:
    await asyncio.Event().wait()


async def _stuck_in_a_task() -> None:
    await asyncio.create_task(_stuck())


WAYS = {
    "lock": lambda: threading.Event().wait(20),
    "sleep": lambda: time.sleep(20),
    "asyncio": lambda: asyncio.run(_stuck()),
    "task": lambda: asyncio.run(_stuck_in_a_task()),
}


@pytest.mark.parametrize("wait", WAYS.values(), ids=WAYS)
def test_waiting_for_ever_fails(wait: Callable[[], object]) -> None:
    with pytest.raises(pytest.fail.Exception, match="not done within"), time_limit(0.05):
        wait()


def test_waiting_for_ever_on_uvloop_stops_the_loop() -> None:
    with pytest.raises(RuntimeError, match="stopped before Future completed"), time_limit(0.05):
        uvloop.run(_stuck())


def test_test_within_its_limit_is_not_interrupted() -> None:
    """Nor is it called late afterwards."""
    with time_limit(0.05):
        done = time.monotonic()
    threading.Event().wait(0.1)
    assert time.monotonic() >= done + 0.1


def test_tests_have_a_limit() -> None:
    left, again = signal.getitimer(signal.ITIMER_REAL)
    assert 0 < left <= 30
    assert again > 0


@pytest.mark.slow
def test_slow_tests_have_more_time() -> None:
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 30


@settings(max_examples=1)
@given(st.just(30))
def test_tests_of_many_examples_have_more_time(seconds: int) -> None:
    assert signal.getitimer(signal.ITIMER_REAL)[0] > seconds
