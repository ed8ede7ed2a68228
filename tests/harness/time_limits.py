"""A pytest plugin that fails a test that waits for ever, so that the others run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
from hypothesis import is_hypothesis_test

_SECONDS = 30.0
"""For a test that takes less than about one on a free machine."""
_SLOW_SECONDS = 240.0
"""For what starts servers or engines. `faulthandler_timeout`, which ends the run, is later."""
_SLOW_MARKS = ("slow", "engine", "conformance", "tools")
_AGAIN = 2.0


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Fail the test if the block takes longer, whatever it waits for; in the main thread only.

    A task of the test may swallow the failure, so it is raised again and again.
    """

    def late(number: int, frame: FrameType | None) -> None:
        loop = _running_loop()
        if type(loop).__module__.startswith("uvloop"):  # which logs what handlers raise
            assert loop is not None
            loop.stop()  # `run_until_complete` raises RuntimeError then
        else:
            pytest.fail(f"not done within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _may_be_slow(item: pytest.Item) -> bool:
    """Examples of hypothesis are many, and take as long as the machine needs."""
    by_examples = is_hypothesis_test(getattr(item, "obj", None))
    return by_examples or any(item.get_closest_marker(name) for name in _SLOW_MARKS)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _limit(item: pytest.Item, usual: float) -> float:
    own = item.get_closest_marker("time_limit")
    return usual if own is None else float(own.args[0])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """A fixture may start what the tests of a whole folder use."""
    with time_limit(max(_SLOW_SECONDS, _limit(item, _SLOW_SECONDS))):
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    with time_limit(_limit(item, _SLOW_SECONDS if _may_be_slow(item) else _SECONDS)):
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    with time_limit(max(_SLOW_SECONDS, _limit(item, _SLOW_SECONDS))):
        yield
