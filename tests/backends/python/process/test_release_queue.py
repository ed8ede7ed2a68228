"""What is let go of beside the turns of the main thread is told all the same."""

from __future__ import annotations

import asyncio
import threading

from penstock_backends.python.process.release_queue import LetGo

PATIENCE = 20.0


def in_a_thread(let_go: LetGo) -> None:
    def end_both() -> None:
        let_go.block(4096)
        let_go.call(7)

    thread = threading.Thread(target=end_both)
    thread.start()
    thread.join()


def test_what_another_thread_lets_go_of_is_told() -> None:
    told = threading.Event()
    in_a_thread(LetGo(told.set))
    assert told.wait(PATIENCE)


def test_what_is_let_go_of_later_is_told_again() -> None:
    told = threading.Semaphore(0)
    let_go = LetGo(lambda: told.release() if let_go.take_blocks() else None)
    for _ in range(3):
        in_a_thread(let_go)
        assert told.acquire(timeout=PATIENCE)


def test_what_the_main_thread_lets_go_of_waits_for_its_turn() -> None:
    let_go = LetGo(lambda: None)
    let_go.block(4096)
    let_go.block((1, 0))
    let_go.call(7)
    assert let_go.take_blocks() == [4096, (1, 0)]
    assert let_go.take_blocks() == []
    assert (let_go.take_call(), let_go.take_call()) == (7, None)


async def test_an_event_loop_tells_what_is_let_go_of_on_it() -> None:
    told = asyncio.Event()
    let_go = LetGo(told.set)
    let_go.tell_on(asyncio.get_running_loop())
    let_go.block(4096)
    await asyncio.wait_for(told.wait(), PATIENCE)


async def test_an_event_loop_tells_what_other_threads_let_go_of() -> None:
    told = asyncio.Event()
    let_go = LetGo(told.set)
    let_go.tell_on(asyncio.get_running_loop())
    in_a_thread(let_go)
    await asyncio.wait_for(told.wait(), PATIENCE)


def test_a_loop_that_is_closed_is_told_nothing() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    let_go = LetGo(lambda: None)
    let_go.tell_on(loop)
    let_go.block(4096)
    assert let_go.take_blocks() == [4096]
