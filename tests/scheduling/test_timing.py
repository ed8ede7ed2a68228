"""Short delays on loops whose own timers are coarse, and on others."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from fakes import in_virtual_time
from harness.outcomes import raises_nothing
from penstock.scheduling.timing import LoopClock

_C = ctypes.CDLL(None)


def _on_uvloop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def _wait(delay: float, library: Any = _C) -> None:
    """Until a callback has come."""
    loop = asyncio.get_running_loop()
    clock, done = LoopClock(loop, library), loop.create_future()
    clock.call_at(clock.now() + delay, lambda: done.set_result(None))
    await done


@in_virtual_time
async def test_other_loops_keep_their_own_time() -> None:
    loop = asyncio.get_running_loop()
    clock, called = LoopClock(loop), asyncio.Event()
    assert clock.now() == loop.time()
    clock.call_at(3.0, called.set)
    await called.wait()
    assert loop.time() == pytest.approx(3.0)


@pytest.mark.contract("D-04")
def test_a_delay_below_a_millisecond_is_left_to_the_kernel() -> None:
    told: list[tuple[int, ...]] = []

    def tell(fd: int, flags: int, times: bytes, former: None) -> None:
        told.append(struct.unpack("qqqq", times))
        _C.timerfd_settime(fd, flags, times, former)

    library = SimpleNamespace(timerfd_create=_C.timerfd_create, timerfd_settime=tell)
    _on_uvloop(lambda: _wait(0.0002, library))
    ((*rest, nanoseconds),) = told
    assert rest == [0, 0, 0]
    assert 0 < nanoseconds <= 200_000


@pytest.mark.parametrize("delay", [-1.0, 0.0])
def test_a_time_that_is_past_comes_at_once(delay: float) -> None:
    with raises_nothing():
        _on_uvloop(lambda: _wait(delay))


def test_a_longer_delay_is_left_to_the_loop() -> None:
    async def long() -> None:
        before = _descriptors()
        waiting = LoopClock(asyncio.get_running_loop()).call_at(time.monotonic() + 60, _never)
        assert _descriptors() == before
        waiting.cancel()

    _on_uvloop(long)


def test_a_timer_that_ran_or_was_cancelled_leaves_nothing_open() -> None:
    async def several() -> None:
        await _wait(0.0001)
        before = _descriptors()
        clock = LoopClock(asyncio.get_running_loop())
        waiting = clock.call_at(clock.now() + 0.002, _never)
        assert _descriptors() == before + 1
        waiting.cancel()
        waiting.cancel()
        await _wait(0.0001)
        await _wait(0.005)  # longer than the cancelled one would have taken
        assert _descriptors() == before

    _on_uvloop(several)


def test_without_such_timers_the_loop_does_what_it_can() -> None:
    with raises_nothing():
        _on_uvloop(lambda: _wait(0.0001, None))


def test_without_a_free_descriptor_the_loop_does_what_it_can() -> None:
    none_free = SimpleNamespace(timerfd_create=lambda clock, flags: -1)
    with raises_nothing():
        _on_uvloop(lambda: _wait(0.0001, none_free))


def _never() -> None:
    raise AssertionError("it was cancelled")
