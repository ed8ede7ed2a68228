"""Signals that end a load: those that come at once count as one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from penstock_client.perf.interrupts import single_interrupts


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def usual() -> Iterator[None]:
    """The handlers that Python begins with."""
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def is_raised(number: int) -> bool:
    try:
        os.kill(os.getpid(), number)
        time.sleep(0)  # handlers run between two steps of Python
    except KeyboardInterrupt:
        return True
    return False


def test_signals_of_one_second_are_one(clock: list[float], usual: None) -> None:
    with single_interrupts():
        told = [is_raised(signal.SIGINT), is_raised(signal.SIGTERM)]
        clock[0] += 1.0
        told.append(is_raised(signal.SIGINT))
        clock[0] += 0.01
        told.append(is_raised(signal.SIGTERM))
        told.append(is_raised(signal.SIGTERM))
    assert told == [True, False, False, True, False]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_what_a_program_handles_itself_stays_its_own(clock: list[float], usual: None) -> None:
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    mine = signal.getsignal(signal.SIGTERM)
    with single_interrupts():
        assert not is_raised(signal.SIGTERM)
        assert is_raised(signal.SIGINT)
    assert told == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is mine
