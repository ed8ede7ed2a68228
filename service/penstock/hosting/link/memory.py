"""The shared memory of one link: an arena each way, and notification of freed blocks."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from penstock.hosting.link.arena import Arena, ArenaView
from penstock.hosting.link.arena_regions import ArenaRegion
from penstock.hosting.link.region_sharing import Borrower, Lender
from penstock.hosting.link.tensor_codec import INLINE, TensorCodec
from penstock.shared_memory.block_views import Block

ARENA_SIZE = 16 << 30
"""Bytes that an arena may grow to; only pages that were written take memory."""


class SharedMemory:
    """One side's view of both arenas. Blocks that it frees are sent once per loop turn.

    `out` and `into` are file descriptors, closed here: the mappings keep the memory. `lender` and
    `borrower` are the two sides of lent regions.
    """

    def __init__(
        self,
        *,
        out: int,
        into: int,
        lender: Lender | None = None,
        borrower: Borrower | None = None,
    ) -> None:
        self._arena: Arena | None = Arena(out)
        self._lender = lender
        view = ArenaView(into, self._released, ArenaRegion(into) if lender else None)
        self._view: ArenaView | None = view
        if borrower is not None:
            borrower.on_return = self._released
        checks = lender is not None  # then the peer is a model process
        self.codec = TensorCodec(self._arena, view, lender, borrower, checks=checks)
        for descriptor in (out, into):
            os.close(descriptor)
        self._freed: deque[Block] = deque()
        self._scheduled = False
        self._send: Callable[[list[Block]], None] | None = None

    def open(self, send: Callable[[list[Block]], None]) -> None:
        """Send freed blocks to the peer from now on, with `send(blocks)`."""
        self._send = send
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """The peer is gone; the memory is released with the last tensor in it."""
        self._send = None
        self._arena, self._view, self.codec = None, None, INLINE
        if self._lender is not None:
            self._lender.close()

    def begin(self, batch: int) -> None:
        """Record that this side begins to execute a batch."""
        if self._arena is not None:
            self._arena.begin(batch)

    @property
    def begun(self) -> int:
        """Number of the batch that the peer began last, 0 before the first; until `close`."""
        assert self._view is not None
        return self._view.begun

    def free(self, blocks: Iterable[Block]) -> None:
        """Free blocks that the peer has released, of this arena or lent ones."""
        if self._arena is None:
            return
        for block in blocks:
            if isinstance(block, int):
                self._arena.free(block)
            elif self._lender is not None:
                self._lender.returned(*block)

    @property
    def used(self) -> int:
        """Number of blocks in this arena that the peer has not released."""
        return 0 if self._arena is None else self._arena.used

    def _released(self, block: Block) -> None:
        """Callback for the last view of a block, in any thread."""
        if self._send is None:
            return
        self._freed.append(block)
        if not self._scheduled:
            self._scheduled = True
            with suppress(RuntimeError):  # the loop is closed: the process is ending
                self._loop.call_soon_threadsafe(self._send_freed)

    def _send_freed(self) -> None:
        self._scheduled = False  # before looking, so that nothing is added unseen
        freed: list[Block] = []
        while self._freed:
            freed.append(self._freed.popleft())
        if freed and self._send is not None:
            self._send(freed)
