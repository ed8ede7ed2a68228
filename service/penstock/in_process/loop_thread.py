"""`LoopThread`: an event loop on a thread of its own, which other threads ask to do things."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, TypeVar

import uvloop

from penstock.in_process.errors import InvalidArgumentError

Argument = TypeVar("Argument")
Result = TypeVar("Result")
Entered = TypeVar("Entered")


class LoopThread:
    """An event loop that runs until `close`. Threads that call it wait; the loop never does."""

    def __init__(self, name: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._waits_for_threads = True
        self._ended = False
        # A finalizer may ask for work while its thread is in the middle of doing so.
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller is on the loop's thread, and so must not wait for it."""
        return threading.current_thread() is self._thread

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin work on the loop; raises `InvalidArgumentError` if that has ended."""
        with self._lock:
            if not self._ended:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise InvalidArgumentError("Server not started")

    def start_quietly(
        self, function: Callable[[Argument], Coroutine[Any, Any, None]], argument: Argument
    ) -> None:
        """Begin work on the loop whose result nobody awaits, unless the loop has ended."""
        with suppress(InvalidArgumentError):
            self.start(function(argument))

    def call(self, function: Callable[[], None]) -> None:
        """Call a function on the loop soon, unless that has ended."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do work on the loop, and wait for its result."""
        return self.start(work).result()

    def close(self, *, wait_for_threads: bool = True) -> None:
        """End the loop and its thread, unless that was done; other threads may never end."""
        self._waits_for_threads = wait_for_threads
        self.call(self._loop.stop)
        if not self.is_current:
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            with self._lock:
                self._ended = True
            self._loop.run_until_complete(_cancel_others())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            if self._waits_for_threads:
                self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


async def _cancel_others() -> None:
    """Cancel all other tasks, those included that were asked for and have not begun."""
    await asyncio.sleep(0)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)


class HeldContext(Generic[Entered]):
    """A context that one task enters, holds and leaves, as task groups inside it need."""

    def __init__(self, context: AbstractAsyncContextManager[Entered]) -> None:
        self._context = context
        self._end = asyncio.Event()
        self._entered: asyncio.Future[Entered] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> Entered:
        """Enter the context; its value, or the error of entering it."""
        self._task = asyncio.create_task(self._hold())
        return await self._entered

    async def close(self) -> None:
        """Leave the context; raises its error."""
        self._end.set()
        if self._task is not None:
            await self._task

    async def _hold(self) -> None:
        try:
            async with self._context as value:
                self._entered.set_result(value)
                await self._end.wait()
        except BaseException as error:
            if self._entered.done():
                raise
            self._entered.set_exception(error)
