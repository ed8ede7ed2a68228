"""The concurrency limit of a step's calls."""

from __future__ import annotations

import pytest

from penstock.scheduling.ensembles.calls import ConcurrencyLimit

pytestmark = pytest.mark.contract("E-11")


def test_calls_beyond_the_limit_wait_in_order() -> None:
    limit, started = ConcurrencyLimit(1), list[str]()
    assert limit.acquire(lambda: started.append("a"))
    assert not limit.acquire(lambda: started.append("b"))
    assert not limit.acquire(lambda: started.append("c"))
    limit.release()
    assert (started, limit.waiting) == (["b"], 1)
    limit.release()
    assert (started, limit.waiting) == (["b", "c"], 0)


def test_a_cancelled_call_takes_no_permit_and_no_memory() -> None:
    limit, started = ConcurrencyLimit(1), list[str]()

    def gone() -> None:
        started.append("gone")

    limit.acquire(lambda: None)
    limit.acquire(gone)
    limit.acquire(lambda: started.append("next"))
    limit.cancel(gone)
    assert limit.waiting == 1
    limit.release()
    assert started == ["next"]


def test_a_released_permit_can_be_acquired_again() -> None:
    limit = ConcurrencyLimit(1)
    limit.acquire(lambda: None)
    limit.release()
    assert limit.acquire(lambda: None)
