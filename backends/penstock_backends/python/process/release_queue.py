"""Queue of released blocks and dropped calls, until they are reported to the server."""

from __future__ import annotations

import _thread
import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from penstock.hosting.link.blocking import LinkClosedError
from penstock.shared_memory.block_views import Block

_GATHER = 0.01
"""Seconds in which further releases are gathered, to be reported together."""


class ReleaseQueue:
    """Gathers releases from any thread; the callback `report` takes them and reports them.

    The thread that made this queue reports before each wait for the server. Releases by other
    threads would have to wait for its next turn, however long the model idles, and so would all
    releases beside the executions of an event loop: for these the queue calls `report` soon.
    """

    def __init__(self, report: Callable[[], None]) -> None:
        self._report = report
        self._blocks: deque[Block] = deque()
        self._calls: deque[int] = deque()
        self._owner = threading.get_ident()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False

    def add_block(self, block: Block) -> None:
        """Add a block of shared memory whose last view is gone."""
        self._blocks.append(block)
        self._schedule()

    def add_call(self, number: int) -> None:
        """Add a call to another model whose responses are no longer wanted.

        Reported soon in any case: the other model works on it until it is notified.
        """
        self._calls.append(number)
        self._schedule(soon=True)

    def take_blocks(self) -> list[Block]:
        """Remove and return all blocks; the caller reports them."""
        blocks: list[Block] = []
        with suppress(IndexError):  # empty; other threads may add and take meanwhile
            while True:
                blocks.append(self._blocks.popleft())
        return blocks

    def take_call(self) -> int | None:
        """Remove and return one call, if any; the caller reports it."""
        try:
            return self._calls.popleft()
        except IndexError:
            return None

    def report_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on the thread that made this queue runs this loop."""
        self._loop = loop

    def _schedule(self, *, soon: bool = False) -> None:
        """Have a report made soon, or else with that which the owner is about to make.

        Called by destructors, so at any moment.
        """
        by_owner = threading.get_ident() == self._owner
        if self._scheduled or (by_owner and self._loop is None and not soon):
            return
        self._scheduled = True
        try:
            if self._loop is None:
                # Not `threading`: the releasing thread may hold its locks.
                _thread.start_new_thread(self._report_later, ())
            elif by_owner:
                self._loop.call_soon(self._report_now)
            else:
                self._loop.call_soon_threadsafe(self._report_now)
        except RuntimeError:  # no more threads, or the loop is closed
            self._scheduled = False

    def _report_later(self) -> None:
        time.sleep(_GATHER)
        self._report_now()

    def _report_now(self) -> None:
        self._scheduled = False  # before the report, so that no later release is missed
        with suppress(LinkClosedError):  # threads that wait for the server notice it too
            self._report()
