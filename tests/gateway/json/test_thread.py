"""The thread of large JSON."""

from __future__ import annotations

import asyncio
import gc
import threading

from penstock.gateway.json.thread import JsonThread


async def test_calls_run_one_at_a_time_beside_the_loop() -> None:
    """More threads would each wait for the lock, and the loop behind them all."""
    thread, running, most = JsonThread(), 0, 0

    def work() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        assert not gc.isenabled()
        for _ in range(1000):
            sum(range(100))
        running -= 1
        return threading.get_ident()

    where = await asyncio.gather(*[thread.run(work) for _ in range(8)])
    thread.close()
    assert most == 1
    assert set(where) != {threading.get_ident()}
    assert gc.isenabled()


async def test_cancelled_call_in_the_queue_is_not_run() -> None:
    thread, begun, hold = JsonThread(), threading.Event(), threading.Event()
    calls = list[int]()

    def wait() -> None:
        begun.set()
        hold.wait(30)

    first = asyncio.create_task(thread.run(wait))
    await asyncio.to_thread(begun.wait, 30)
    second = asyncio.create_task(thread.run(calls.append, 1))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    hold.set()
    await first
    await thread.run(lambda: None)
    thread.close()
    assert calls == []
