"""Arenas: shared memory for large tensors between the server and one model process.

Each direction has an arena of its own: anonymous memory (no file to leak, whichever process dies)
that both processes map. Its writer allocates blocks; the reader sends back which ones it has
released. Blocks that one model process has written may be lent to another, which maps them as well.
Behind the blocks is the number of the batch that the writer began last, readable after its death.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable
from functools import partial

from penstock.core.buffer import Buffer
from penstock.core.region import HostSlice, Region, RegionSlice
from penstock.shared_memory.block_views import BlockViews
from penstock.shared_memory.blocks import BlockAllocator
from penstock.shared_memory.sealed import seal_size

SHARE_FROM = 16 * 1024
"""Bytes from which a tensor travels through the arena; measured: it gains nothing below 4 KiB."""

LEND_FROM = 256 * 1024
"""Bytes from which it is cheaper to have another process map a block than to copy it."""


_BEGUN = 4096
"""Bytes behind the blocks: a page, of which the first word counts."""


def create(size: int) -> int:
    """The file descriptor of a new arena; pages take memory only once they are written."""
    descriptor = os.memfd_create("penstock-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size + _BEGUN)
    seal_size(descriptor)
    return descriptor


class Arena:
    """The writer's side: allocates blocks. Any thread may put and free."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, 0)
        self._bytes = memoryview(self._memory)
        size = len(self._memory) - _BEGUN
        self._begun = self._bytes[size:].cast("Q")
        self._blocks = BlockAllocator(size, partial(self._memory.madvise, mmap.MADV_REMOVE))
        self._views = BlockViews(self._blocks.free)

    @property
    def used(self) -> int:
        """Blocks that are in use."""
        return self._blocks.used

    def begin(self, batch: int) -> None:
        """Record that this batch has begun, where the reader finds it even after a crash."""
        self._begun[0] = batch

    def put(self, data: Buffer) -> int | None:
        """Copy `data` into a block; its offset, or `None` when there is no room."""
        size = len(data)
        offset = self._blocks.take(size)
        if offset is not None:
            self._bytes[offset : offset + size] = data
        return offset

    def free(self, offset: int) -> None:
        """Free a block that the reader has released."""
        self._blocks.free(offset)

    def take_back(self, offset: int, at: int, size: int) -> memoryview:
        """A view of a part of a block that the reader has returned with its contents.

        The block is freed with the last view.
        """
        return self._views.over(self._bytes, offset, offset + at, size)


class ArenaView:
    """The reader's side: views of blocks, with a callback when a block has no view any more."""

    def __init__(
        self, descriptor: int, on_free: Callable[[int], None], region: Region | None = None
    ) -> None:
        self._bytes = memoryview(mmap.mmap(descriptor, 0))
        self._region = region
        self.views = BlockViews(on_free)

    @property
    def begun(self) -> int:
        """Number of the batch that the writer began last; 0 before the first."""
        at = len(self._bytes) - _BEGUN
        return int.from_bytes(self._bytes[at : at + 8], sys.byteorder)

    def place(self, offset: int, block: memoryview) -> RegionSlice | None:
        """The location of a viewed block, for other processes that can map the same memory."""
        if self._region is None or len(block) < LEND_FROM:
            return None
        return HostSlice(self._region, offset, block)

    def view(self, offset: int, size: int) -> memoryview:
        """The block's bytes, without a copy."""
        return self.views.over(self._bytes, offset, offset, size)
