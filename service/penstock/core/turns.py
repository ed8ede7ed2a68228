"""Turns: of long computations on the event loop, of its other work, and of threads."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")

_TURNS = 3
"""Turns of the event loop after which nobody waits any more, if nobody has in them."""

Steps = Generator[None, None, T]
"""A computation that yields every few milliseconds, and returns its result."""


_SHORT = 0.001
"""Seconds; Python's own interval is 5 ms, which each request on the event loop would wait."""


class SwitchInterval:
    """The interpreter's switch interval, short while long work of Python runs on any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._usual = 0.0

    @contextmanager
    def short(self) -> Iterator[None]:
        """Have threads switch each millisecond within the block; from any thread."""
        with self._lock:
            if not self._users:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, _SHORT))
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    sys.setswitchinterval(self._usual)


SWITCH_INTERVAL = SwitchInterval()
"""That of this process."""


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

    Between two steps the event loop serves everybody else, however many compute. Other threads,
    such as those of models, get Python's lock after a millisecond.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def run(self, steps: Steps[T]) -> T:
        """The result of a computation, one step of which runs in each turn."""
        with SWITCH_INTERVAL.short():
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


class Ration:
    """How much is done in one turn of the event loop, by all together: `most` pieces of work.

    While some wait, other threads get Python's lock after a millisecond: a loop that looks for
    events every few would seldom leave it to them.
    """

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._renewing = False
        self._last = 0  # turns that are left of them
        self._short = ExitStack()

    def take(self) -> asyncio.Future[None] | None:
        """Take one piece; `None` if it may be done now, else a future that is done when it may."""
        loop = asyncio.get_running_loop()
        if not self._renewing:
            self._renewing = True
            loop.call_soon(self._renew)
        if self._left:
            self._left -= 1
            return None
        if not self._last:
            self._short.enter_context(SWITCH_INTERVAL.short())
        self._last = _TURNS
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        return turn

    def _renew(self) -> None:
        """Let those go on who have waited longest."""
        self._left = self._most
        self._renewing = self._last > 0
        if self._renewing:
            self._last = _TURNS if self._waiting else self._last - 1
            asyncio.get_running_loop().call_soon(self._renew)
            if not self._last:
                self._short.close()
        while self._waiting and self._left:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._left -= 1


class LoopTurn:
    """Counts bytes that are worked on, of which a turn has room for `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._spent = 0

    @property
    def over(self) -> bool:
        """Whether the room of this turn is used up."""
        return self._spent >= self._most

    def spend(self, size: int) -> None:
        """Count more bytes."""
        if not self._spent:
            asyncio.get_running_loop().call_soon(self._ended)
        self._spent += size

    def _ended(self) -> None:
        self._spent = 0


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
