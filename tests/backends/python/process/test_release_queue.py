"""Releases beside the turns of the main thread are reported all the same."""

from __future__ import annotations

import asyncio
import threading

from penstock_backends.python.process.release_queue import ReleaseQueue

PATIENCE = 20.0


def in_a_thread(queue: ReleaseQueue) -> None:
    def release_both() -> None:
        queue.add_block(4096)
        queue.add_call(7)

    thread = threading.Thread(target=release_both)
    thread.start()
    thread.join()


def test_releases_of_another_thread_are_reported() -> None:
    reported = threading.Event()
    in_a_thread(ReleaseQueue(reported.set))
    assert reported.wait(PATIENCE)


def test_later_releases_are_reported_again() -> None:
    reported = threading.Semaphore(0)
    queue = ReleaseQueue(lambda: reported.release() if queue.take_blocks() else None)
    for _ in range(3):
        in_a_thread(queue)
        assert reported.acquire(timeout=PATIENCE)


def test_releases_of_the_main_thread_wait_for_its_turn() -> None:
    queue = ReleaseQueue(lambda: None)
    queue.add_block(4096)
    queue.add_block((1, 0))
    queue.add_call(7)
    assert queue.take_blocks() == [4096, (1, 0)]
    assert queue.take_blocks() == []
    assert (queue.take_call(), queue.take_call()) == (7, None)


async def test_an_event_loop_reports_its_own_releases() -> None:
    reported = asyncio.Event()
    queue = ReleaseQueue(reported.set)
    queue.report_on(asyncio.get_running_loop())
    queue.add_block(4096)
    await asyncio.wait_for(reported.wait(), PATIENCE)


async def test_an_event_loop_reports_releases_of_other_threads() -> None:
    reported = asyncio.Event()
    queue = ReleaseQueue(reported.set)
    queue.report_on(asyncio.get_running_loop())
    in_a_thread(queue)
    await asyncio.wait_for(reported.wait(), PATIENCE)


def test_a_closed_loop_gets_no_callback() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    queue = ReleaseQueue(lambda: None)
    queue.report_on(loop)
    queue.add_block(4096)
    assert queue.take_blocks() == [4096]
