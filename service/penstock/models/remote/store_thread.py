"""`StoreThread`: asks stores on an event loop of its own, so that what is asked can be stopped."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

_NICE = 10
"""What fetches leaves the processor to what serves; threads of `obstore` take it over."""

_LOOK_SECONDS = 0.5
"""Between looks whether the thread has ended under a coroutine."""


class StoppedError(OSError):
    """The server ends; what was fetched so far is kept."""

    def __init__(self) -> None:
        super().__init__("the server is being stopped")


class StoreThread:
    """A thread that runs coroutines for other threads, until it is stopped.

    It does not hold the end of the process.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._called: dict[Future[Any], threading.Thread] = {}
        self._thread = threading.Thread(target=self._serve, name="penstock-stores", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine; raises `StoppedError`."""
        return self.result(self.begin(coroutine))

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin with a coroutine."""
        if self._stopping.is_set():
            coroutine.close()
            raise StoppedError
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function: Callable[[], T]) -> T:
        """Wait for what blocks, on a thread of its own; raises `StoppedError`.

        A stop ends the waiting and not the thread, which may never end (`has_left`).
        """
        found = Future[T]()
        with self._lock:
            if self._stopping.is_set():
                raise StoppedError
            self._called[found] = threading.Thread(
                target=_work, args=(function, found), name="penstock-hub", daemon=True
            )
            self._called[found].start()
        try:
            return self.result(found)
        finally:
            if not found.cancelled():
                del self._called[found]

    @property
    def has_left(self) -> bool:
        """Whether something that was called and cut off by a stop has not ended."""
        return any(thread.is_alive() for thread in [*self._called.values()])

    def result(self, future: Future[T]) -> T:
        """Wait for what was begun; raises `StoppedError`."""
        while True:
            try:
                return future.result(_LOOK_SECONDS)
            except CancelledError:
                raise StoppedError from None
            except TimeoutError:
                if future.done():  # its own
                    raise
                if not self._thread.is_alive():
                    raise StoppedError from None

    def wait(self, seconds: float) -> bool:
        """Wait so long, on any other thread; whether it was stopped."""
        return self._stopping.wait(seconds)

    def stop(self) -> None:
        """Cancel what runs; nothing begins any more."""
        with self._lock:
            if self._stopping.is_set():
                return
            self._stopping.set()
        for future in [*self._called]:
            future.cancel()
        self._loop.call_soon_threadsafe(self._cancel)

    def close(self) -> None:
        """Stop, and end the thread."""
        self.stop()
        self._thread.join()

    def _serve(self) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _cancel(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        ended = asyncio.ensure_future(_all_ended(tasks), loop=self._loop)
        ended.add_done_callback(lambda _: self._loop.stop())


def _work(function: Callable[[], T], found: Future[T]) -> None:
    with suppress(InvalidStateError):  # nobody waits for it any more
        try:
            found.set_result(function())
        except InvalidStateError:
            raise
        except BaseException as error:
            found.set_exception(error)


async def _all_ended(tasks: set[asyncio.Task[Any]]) -> None:
    if tasks:
        await asyncio.wait(tasks)
