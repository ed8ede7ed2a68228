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

_SIZE = 1 << 20


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

    working = asyncio.create_task(thread.run(_SIZE, work))
    while not working.done():
        await asyncio.sleep(0)
        turns += 1
    thread.close()
    assert turns >= 20


@pytest.mark.usefixtures("no_switches")
@pytest.mark.slow
async def test_others_have_turns_while_a_long_list_is_decoded() -> None:
    """Texts: what decodes numbers gives up the lock by itself now and then."""
    thread, turns, begun = JsonThread(), 0, asyncio.Event()
    loop = asyncio.get_running_loop()
    data = b"[%b]" % b",".join([b'"some text"'] * 2_000_000)

    def work() -> list[str]:
        loop.call_soon_threadsafe(begun.set)
        decoded: list[str] = parse(data, 1 << 22)
        return decoded

    working = asyncio.create_task(thread.run(_SIZE, work))
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

    where = await asyncio.gather(*[thread.run(size << 20, work) for size in (1, 3, 9, 40) * 2])
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

    first = asyncio.create_task(thread.run(_SIZE, wait))
    await asyncio.to_thread(begun.wait, 30)
    second = asyncio.create_task(thread.run(_SIZE, calls.append, 1))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    hold.set()
    await first
    await thread.run(_SIZE, lambda: None)
    thread.close()
    assert calls == []


async def test_a_short_text_ends_before_a_long_one_that_came_first() -> None:
    thread, begun, ended = JsonThread(), threading.Event(), list[str]()

    def long() -> None:
        begun.set()
        while not ended:
            give_turn()
        ended.append("long")

    first = asyncio.create_task(thread.run(60 << 20, long))
    await asyncio.to_thread(begun.wait, 30)
    await thread.run(_SIZE, ended.append, "short")
    await first
    thread.close()
    assert ended == ["short", "long"]


async def test_texts_of_a_size_come_one_after_another() -> None:
    thread, ended = JsonThread(), list[int]()

    def work(number: int) -> None:
        for _ in range(1000):
            give_turn()
        ended.append(number)

    await asyncio.gather(*[thread.run(_SIZE, work, number) for number in range(5)])
    thread.close()
    assert ended == [*range(5)]


async def test_collections_rest_until_the_last_of_the_threads_is_done() -> None:
    thread, inside, collects = JsonThread(), threading.Event(), list[bool]()

    def long() -> None:
        inside.set()
        while not collects:
            give_turn()
        collects.append(gc.isenabled())

    first = asyncio.create_task(thread.run(60 << 20, long))
    await asyncio.to_thread(inside.wait, 30)
    await thread.run(_SIZE, lambda: collects.append(gc.isenabled()))
    await first
    thread.close()
    assert collects == [False, False]
    assert gc.isenabled()
