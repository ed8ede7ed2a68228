"""An event loop on a thread of its own, asked by others while it ends."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from penstock.in_process.errors import InvalidArgumentError
from penstock.in_process.loop_thread import LoopThread


async def _forever() -> None:
    await asyncio.Event().wait()


def test_work_that_was_asked_for_at_the_end_is_cancelled() -> None:
    thread = LoopThread("test")
    closing = threading.Event()

    async def slow_end() -> None:
        try:
            await _forever()
        finally:
            closing.set()
            await asyncio.to_thread(asked.wait)

    asked = threading.Event()
    first = thread.start(slow_end())
    thread.run(asyncio.sleep(0))
    ending = threading.Thread(target=thread.close)
    ending.start()
    assert closing.wait(20)
    with pytest.raises(InvalidArgumentError, match="not started"):
        thread.start(_forever())
    asked.set()
    ending.join()
    with pytest.raises(CancelledError):
        first.result(20)


def test_work_that_has_not_begun_is_cancelled_too() -> None:
    thread = LoopThread("test")
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        go_on.wait()

    thread.call(hold)
    assert held.wait(20)
    ending = threading.Thread(target=thread.close)
    ending.start()
    late = thread.start(_forever())
    go_on.set()
    ending.join()
    with pytest.raises(CancelledError):
        late.result(20)
