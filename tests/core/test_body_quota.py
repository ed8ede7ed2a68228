"""The count of the bytes of bodies."""

from __future__ import annotations

import threading

import numpy as np

from penstock.core.body_quota import BodyQuota, Charge


def memory(size: int = 100) -> memoryview:
    return np.empty(size, np.uint8).data


def test_bytes_count_until_the_last_view_of_their_memory_is_gone() -> None:
    quota, body = BodyQuota(1000), memory()
    charge = quota.open(body, 10)
    quota.add(charge, 20)
    view = body[50:]
    del body
    assert quota.used == 30
    del view
    assert quota.used == 0


def test_bodies_wait_once_the_quota_is_used_and_reading_ends_far_beyond() -> None:
    quota, body = BodyQuota(1000), memory()
    charge = quota.open(body, 999)
    seen = [(quota.exhausted, quota.overdrawn)]
    for size in (1, 32 << 20):
        quota.add(charge, size)
        seen.append((quota.exhausted, quota.overdrawn))
    assert seen == [(False, False), (True, False), (True, True)]


def test_bytes_may_be_counted_before_there_is_memory() -> None:
    quota, charge = BodyQuota(1000), Charge(0)
    quota.add(charge, 50)
    body = memory()
    quota.close_with(body, charge)
    assert quota.used == 50
    del body
    assert quota.used == 0


def test_memory_may_be_freed_by_other_threads() -> None:
    quota, told = BodyQuota(1 << 20), list[int]()
    quota.on_freed = lambda: told.append(threading.get_ident())
    bodies = [memory() for _ in range(100)]
    for body in bodies:
        quota.open(body, 7)
    del body
    thread = threading.Thread(target=bodies.clear)
    thread.start()
    thread.join()
    assert quota.used == 0
    assert told == [thread.ident] * 100
