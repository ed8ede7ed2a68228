"""The shared memory of one link: an arena each way, and word of blocks that are free again."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable

from penstock.hosting.link.arena import Arena, ArenaView
from penstock.hosting.link.arena_regions import ArenaRegion
from penstock.hosting.link.region_sharing import Borrower, Lender
from penstock.hosting.link.tensor_codec import INLINE, TensorCodec
from penstock.shared_memory.block_views import Block

ARENA_SIZE = 16 << 30
"""Bytes that an arena may grow to; only pages that were written take memory."""


class SharedMemory:
    """One side's view of both arenas. What the other side frees is told once per loop turn.

    `out` and `into` are descriptors, closed here: the mappings keep the memory. `lender` and
    `borrower` are the sides that memory of clients has.
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
        self.codec = TensorCodec(self._arena, view, lender, borrower)
        for descriptor in (out, into):
            os.close(descriptor)
        self._freed: deque[Block] = deque()
        self._telling = False
        self._tell: Callable[[list[Block]], None] | None = None

    def open(self, tell: Callable[[list[Block]], None]) -> None:
        """Tell the other side from now on, with `tell(blocks)`."""
        self._tell = tell
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Nobody is left to tell; the memory goes with the last tensor that looks at it."""
        self._tell = None
        self._arena, self._view, self.codec = None, None, INLINE
        if self._lender is not None:
            self._lender.close()

    def begin(self, batch: int) -> None:
        """This side begins to execute a batch."""
        if self._arena is not None:
            self._arena.begin(batch)

    @property
    def begun(self) -> int:
        """The batch that the other side has begun last, 0 before the first; until `close`."""
        assert self._view is not None
        return self._view.begun

    def free(self, blocks: Iterable[Block]) -> None:
        """The other side no longer looks at blocks of ours, or at some that were lent to it."""
        if self._arena is None:
            return
        for block in blocks:
            if isinstance(block, int):
                self._arena.free(block)
            elif self._lender is not None:
                self._lender.returned(*block)

    @property
    def used(self) -> int:
        """Blocks of ours that the other side may still look at."""
        return 0 if self._arena is None else self._arena.used

    def _released(self, block: Block) -> None:
        """The last view of a block is gone, in whichever thread."""
        if self._tell is None:
            return
        self._freed.append(block)
        if not self._telling:
            self._telling = True
            self._loop.call_soon_threadsafe(self._tell_freed)

    def _tell_freed(self) -> None:
        self._telling = False  # before looking, so that nothing is added unseen
        freed: list[Block] = []
        while self._freed:
            freed.append(self._freed.popleft())
        if freed and self._tell is not None:
            self._tell(freed)
