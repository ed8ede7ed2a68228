"""The thread of large JSON."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator

import pytest

from penstock.gateway.json.text import parse
from penstock.gateway.json.thread import JsonThread, give_turn


@pytest.fixture
def no_switches() -> Iterator[None]:
    """A thread keeps the interpreter's lock until it gives it up."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("no_switches")
async def test_others_have_turns_beside_a_call() -> None:
    thread, turns = JsonThread(), 0

    def work() -> None:
        while turns < 20:
            give_turn()

    working = asyncio.create_task(thread.run(work))
    while not working.done():
        await asyncio.sleep(0)
        turns += 1
    thread.close()
    assert turns >= 20


@pytest.mark.usefixtures("no_switches")
async def test_others_have_turns_while_a_long_list_is_decoded() -> None:
    """Texts: what decodes numbers gives up the lock by itself now and then."""
    thread, turns, begun = JsonThread(), 0, asyncio.Event()
    loop = asyncio.get_running_loop()
    data = b"[%b]" % b",".join([b'"some text"'] * 2_000_000)

    def work() -> list[str]:
        loop.call_soon_threadsafe(begun.set)
        decoded: list[str] = parse(data)
        return decoded

    working = asyncio.create_task(thread.run(work))
    await begun.wait()
    while not working.done():
        await asyncio.sleep(0)
        turns += 1
    thread.close()
    assert turns > 10
    assert len(working.result()) == 2_000_000


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
