"""Shared memory for large tensors between the server and one model process.

Each direction has an arena of its own: anonymous memory (no file to leak, whoever dies) that both
processes map. Its writer allocates blocks; the reader tells which ones it no longer looks at. What
one model process has written may be lent to another, which maps it as well. Behind the blocks is
the number of the batch that the writer has begun last, to be read when it is dead.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from penstock.core.region import HostSlice, Region, RegionSlice
from penstock.core.tensor import Buffer

SHARE_FROM = 16 * 1024
"""Bytes from which a tensor travels through the arena; measured: equal below 4 KiB (contract
architecture, "One process that talks")."""

_SMALLEST = 16
"""log2 of the smallest block."""

_KEEP = 64 << 20
"""Free blocks of more than this are given back to the system instead of kept warm."""


LEND_FROM = 256 * 1024
"""Bytes from which it is cheaper to have another process map a block than to copy it."""


_BEGUN = 4096
"""Bytes behind the blocks: a page, of which the first word counts."""


def create(size: int) -> int:
    """The descriptor of new shared memory; pages count only once they are written."""
    descriptor = os.memfd_create("penstock-arena", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, size + _BEGUN)
    return descriptor


class Arena:
    """The writer's side: blocks of powers of two, the one freed last is used first.

    Any thread may put and free.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, 0)
        self._bytes = memoryview(self._memory)
        self._size = len(self._memory) - _BEGUN
        self._begun = self._bytes[self._size :].cast("Q")
        self._end = 0
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        self._classes: dict[int, int] = {}
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """Blocks that are in use."""
        return len(self._classes)

    def begin(self, batch: int) -> None:
        """Let the reader know, whatever comes, that this batch has been begun."""
        self._begun[0] = batch

    def put(self, data: Buffer) -> int | None:
        """Copy `data` into a block; its offset, or `None` when there is no room."""
        size = len(data)
        with self._lock:
            offset = self._allocate(size)
        if offset is not None:
            self._bytes[offset : offset + size] = data
        return offset

    def free(self, offset: int) -> None:
        """The reader no longer looks at the block."""
        with self._lock:
            order = self._classes.pop(offset)
            if 1 << order > _KEEP:
                self._memory.madvise(mmap.MADV_REMOVE, offset, 1 << order)
            self._free[order].append(offset)

    def _allocate(self, size: int) -> int | None:
        order = max((size - 1).bit_length(), _SMALLEST)
        free = self._free[order]
        if free:
            offset = free.pop()
        elif self._end + (1 << order) <= self._size:
            offset = self._end
            self._end += 1 << order
        else:
            return None
        self._classes[offset] = order
        return offset


class ArenaView:
    """The reader's side: views of blocks, and word of those that nobody looks at any more.

    `on_free(offset)` is called when the last array or memoryview over a block is gone. A view
    keeps the memory mapped, also after the other process has died.
    """

    def __init__(
        self, descriptor: int, on_free: Callable[[int], None], region: Region | None = None
    ) -> None:
        self._memory = mmap.mmap(descriptor, 0)
        self._on_free = on_free
        self._region = region
        self._watched: dict[int, weakref.ref[object]] = {}

    @property
    def begun(self) -> int:
        """The number of the batch that the writer has begun last; 0 before the first."""
        at = len(self._memory) - _BEGUN
        return int.from_bytes(self._memory[at : at + 8], sys.byteorder)

    def place(self, offset: int, block: memoryview) -> RegionSlice | None:
        """Where a block that was viewed lies, for other processes that can map the same memory."""
        if self._region is None or len(block) < LEND_FROM:
            return None
        return HostSlice(self._region, offset, block)

    def view(self, offset: int, size: int) -> memoryview:
        """The block's bytes, without a copy."""
        block = np.frombuffer(self._memory, np.uint8, size, offset)
        # numpy keeps `block` as the base of every view of it, so its end is the end of them all.
        self._watched[offset] = weakref.ref(block, lambda _: self._released(offset))
        return block.data

    def _released(self, offset: int) -> None:
        del self._watched[offset]
        self._on_free(offset)
