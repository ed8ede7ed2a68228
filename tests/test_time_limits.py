"""Waiting that never ends fails its test in time, and no other."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.time_limits import time_limit

_PROGRAM = """
import asyncio, threading, time
import pytest, uvloop
from harness.time_limits import time_limit

def blocked(wait):
    with time_limit(0.05):
        wait(20)

async def stuck():
    with time_limit(0.05):  # which begins when the loop runs
        await asyncio.Event().wait()

async def stuck_in_a_task():
    await asyncio.create_task(stuck())

try:
    {wait}
except (pytest.fail.Exception, RuntimeError) as failure:
    print(failure)
"""


@pytest.mark.parametrize(
    ("wait", "failure"),
    [
        ("blocked(threading.Event().wait)", "not done within 0.05 s"),
        ("blocked(time.sleep)", "not done within 0.05 s"),
        ("asyncio.run(stuck())", "not done within 0.05 s"),
        ("asyncio.run(stuck_in_a_task())", "not done within 0.05 s"),
        ("uvloop.run(stuck())", "Event loop stopped before Future completed."),
    ],
)
def test_waiting_for_ever_fails(wait: str, failure: str) -> None:
    """In a process of its own: with the threads of all other tests, a raising handler may crash."""
    program = [sys.executable, "-c", _PROGRAM.format(wait=wait)]
    folder = Path(__file__).parent
    ended = subprocess.run(program, cwd=folder, capture_output=True, text=True)
    assert ended.stdout.splitlines() == [failure], ended.stderr


def test_test_within_its_limit_is_not_interrupted() -> None:
    """Nor is it called late afterwards."""
    with time_limit(60):
        left, _ = signal.getitimer(signal.ITIMER_REAL)
    assert 0 < left <= 60
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.fixture
def left() -> float:
    """The seconds that a fixture has left."""
    return signal.getitimer(signal.ITIMER_REAL)[0]


@pytest.mark.time_limit(500)
def test_a_fixture_has_the_limit_of_its_test(left: float) -> None:
    assert 240 < left <= 500


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
