"""Work on the thread pool: step by step, few at a time, until its caller is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from penstock.core.buffer import Buffer
from penstock.rpc.native.server_state import Workers

PATIENCE = 60.0


class Steps:
    """Work of `count` steps, each of which waits for the gate."""

    def __init__(self, count: int, *, free: bool = True) -> None:
        self.left = count
        self.done = 0
        self.gate = threading.Semaphore(count + 1 if free else 0)

    def step(self) -> bool:
        self.gate.acquire(timeout=PATIENCE)
        self.done += 1
        self.left -= 1
        if self.left < 0:
            raise ValueError("too far")
        return not self.left

    def result(self) -> bytes:
        return str(self.done).encode()


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers()
    yield workers
    workers.close()


async def begun(task: asyncio.Task[Buffer]) -> None:
    """Let a task go as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()


async def test_work_is_done_to_its_end(workers: Workers) -> None:
    assert await workers.run(Steps(3)) == b"3"


async def test_exception_of_a_step_is_raised(workers: Workers) -> None:
    with pytest.raises(ValueError, match="too far"):
        await workers.run(Steps(0))


async def test_cancelled_caller_stops_the_work_at_its_next_step(workers: Workers) -> None:
    steps = Steps(3, free=False)
    task = asyncio.ensure_future(workers.run(steps))
    await begun(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(3):
        steps.gate.release()
    assert await workers.run(Steps(50)) == b"50"
    assert steps.done <= 1


async def test_little_grows_at_a_time(workers: Workers) -> None:
    """The fifth begins when one of four is done or its caller cancelled."""
    four = [Steps(1, free=False) for _ in range(4)]
    tasks = [asyncio.ensure_future(workers.run_growing(steps)) for steps in four]
    fifth = asyncio.ensure_future(workers.run_growing(Steps(1)))
    await begun(fifth)
    tasks[0].cancel()
    four[0].gate.release()
    assert await asyncio.wait_for(fifth, PATIENCE) == b"1"
    for steps in four:
        steps.gate.release()
    assert await asyncio.gather(*tasks[1:]) == [b"1"] * 3
