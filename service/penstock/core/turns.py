"""Long computations in slices, which take turns on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""A computation that yields every few milliseconds, and returns its result."""


def finished(steps: Steps[T]) -> T:
    """The result of a computation, all steps of which run now."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


class Turns:
    """The order of those who compute in slices: each runs one step, then the next in line does.

    Between two steps the event loop serves everybody else, however many compute.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def run(self, steps: Steps[T]) -> T:
        """The result of a computation, one step of which runs in each turn."""
        while True:
            await self._lock.acquire()
            try:
                next(steps)
                # With the lock: the next step is one of the loop's next turn.
                await asyncio.sleep(0)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                self._lock.release()


class Sliced(Generic[T]):
    """A computation whose first step was not its last."""

    def __init__(self, steps: Steps[T], turns: Turns) -> None:
        self._steps = steps
        self._turns = turns

    async def result(self) -> T:
        """The result, after the other steps."""
        return await self._turns.run(self._steps)

    def within(self, enclosing: Callable[[Steps[T]], Steps[T]]) -> Sliced[T]:
        """The same computation as a part of another, which is made of its steps."""
        return Sliced(enclosing(self._steps), self._turns)


def begun(steps: Steps[T], turns: Turns) -> T | Sliced[T]:
    """The result if one step is enough, which runs now; else the rest of the computation."""
    try:
        next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
    return Sliced(steps, turns)
