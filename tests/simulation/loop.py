"""An event loop whose time is virtual, and which notices that everything stands."""

from __future__ import annotations

import asyncio
import random
import selectors
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any


class StandsStillError(Exception):
    """Somebody waits, and nothing will ever happen."""


class _Selector(selectors.DefaultSelector):
    """Puts the clock forward to the next timer instead of waiting for it."""

    now = 1000.0

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if events or timeout == 0:
            return events
        if timeout is None:
            raise StandsStillError
        self.now += timeout
        return events


class SimulatedLoop(asyncio.SelectorEventLoop):
    """All that goes on is on this loop, so that a seed decides everything.

    What is given to a thread runs on the loop, a moment later; both ends of each socket are here.
    `on_turn` is called after each turn.
    """

    def __init__(self, chance: random.Random) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)
        self._chance = chance
        self.turns = 0
        self.on_turn: Callable[[], None] | None = None
        self.complaints: list[str] = []
        self.set_exception_handler(self._complain)

    def time(self) -> float:
        return self._clock.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        future = self.create_future()
        self.call_later(self._chance.choice((0.0, 0.0, 0.001)), _run, future, func, args)
        return future

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]
        self.turns += 1
        if self.on_turn is not None:
            self.on_turn()

    def _complain(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.complaints.append(f"{context.get('message')}: {context.get('exception')!r}")


def _run(future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if future.cancelled():
        return
    try:
        future.set_result(func(*args))
    except BaseException as error:
        future.set_exception(error)


@contextmanager
def _clock_of(loop: SimulatedLoop) -> Iterator[None]:
    """Python's monotonic clock is the loop's meanwhile."""
    kept = time.monotonic, time.monotonic_ns
    time.monotonic, time.monotonic_ns = loop.time, lambda: int(loop.time() * 1e9)
    try:
        yield
    finally:
        time.monotonic, time.monotonic_ns = kept


def simulate(seed: int, play: Callable[[random.Random], Coroutine[Any, Any, None]]) -> None:
    """Run a play whose chance has this seed; raises what it raises, and for what goes wrong."""
    chance = random.Random(seed)
    loop = SimulatedLoop(chance)
    with _clock_of(loop):
        try:
            loop.run_until_complete(play(chance))
        finally:
            left = [task for task in asyncio.all_tasks(loop) if not task.done()]
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=60))
            loop.close()
    if loop.complaints:
        raise AssertionError(loop.complaints[0])
