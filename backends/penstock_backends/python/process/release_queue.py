"""What the model has let go of, in whichever thread: memory of its inputs, and calls."""

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
"""Seconds in which others may let go of something too, to be told together."""


class LetGo:
    """Keeps it until the server is told, which `tell` does.

    The thread that this was made in tells before it waits for the server. What others let go of
    would have to wait for its next turn, however long the model idles; so would all that is let go
    of beside the executions of an event loop. That is told soon, for all at once.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._blocks: deque[Block] = deque()
        self._calls: deque[int] = deque()
        self._owner = threading.get_ident()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hurried = False

    def block(self, block: Block) -> None:
        """The last view of a block is gone."""
        self._blocks.append(block)
        self._hurry()

    def call(self, number: int) -> None:
        """Nobody waits for the responses to a call any more."""
        self._calls.append(number)
        self._hurry()

    def take_blocks(self) -> list[Block]:
        """The blocks, which the caller is going to tell of."""
        blocks: list[Block] = []
        with suppress(IndexError):  # the end; other threads may let go meanwhile, and take
            while True:
                blocks.append(self._blocks.popleft())
        return blocks

    def take_call(self) -> int | None:
        """A call, which the caller is going to tell of."""
        try:
            return self._calls.popleft()
        except IndexError:
            return None

    def tell_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on the thread that this was made in runs this loop."""
        self._loop = loop

    def _hurry(self) -> None:
        """See that it is told soon, unless the owner is going to; called at any moment."""
        at_home = threading.get_ident() == self._owner
        if self._hurried or (at_home and self._loop is None):
            return
        self._hurried = True
        try:
            if self._loop is None:
                # Not `threading`, whose locks the thread may hold in which something ends.
                _thread.start_new_thread(self._tell_soon, ())
            elif at_home:
                self._loop.call_soon(self._tell_now)
            else:
                self._loop.call_soon_threadsafe(self._tell_now)
        except RuntimeError:  # no more threads, or the loop is closed
            self._hurried = False

    def _tell_soon(self) -> None:
        time.sleep(_GATHER)
        self._tell_now()

    def _tell_now(self) -> None:
        self._hurried = False  # before looking, so that nothing is added unseen
        with suppress(LinkClosedError):  # whoever waits for the server sees it too
            self._tell()
