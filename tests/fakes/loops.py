"""The event loop of a test: turns of it, and one whose time is made up."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

Arguments = ParamSpec("Arguments")


async def turns(count: int = 5) -> None:
    """Let everything run that can run without waiting for anything."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """Let everything run until something is true, which a thread may have to do with."""
    async with asyncio.timeout(20):
        while not condition():
            await turns(1)


class _VirtualSelector(selectors.DefaultSelector):
    """Instead of sleeping until the next timer, puts the clock forward to it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(timeout if timeout is None else 0)
        if not events and timeout:
            self.now += timeout
        return events


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _VirtualSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now

    def occupy(self, seconds: float) -> None:
        self._clock.now += seconds

    async def shutdown_default_executor(self, *_limit: Any) -> None:
        """Wait for threads for as long as they take: a limit in virtual time is over at once."""
        await super().shutdown_default_executor()


def occupy(seconds: float) -> None:
    """Keep the event loop of a test in virtual time from everything else for so long."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _VirtualLoop)
    loop.occupy(seconds)


def in_virtual_time(
    test: Callable[Arguments, Coroutine[Any, Any, None]],
) -> Callable[Arguments, None]:
    """Run a test on a loop whose clock starts at 0 and jumps to whatever is waited for."""

    @wraps(test)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
