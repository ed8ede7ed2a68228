"""Memory for large messages that requests come in: a model process maps it, and copies nothing."""

from __future__ import annotations

import mmap
import os
import weakref
from functools import partial

from penstock.core.buffer import Buffer
from penstock.core.region import HostSlice, Region, RegionSlice, SharedFile
from penstock.shared_memory.block_views import BlockViews
from penstock.shared_memory.blocks import BlockAllocator

WORTH = 32 << 10
"""Bytes of a message from which this costs less than a copy of its tensors. HTTP/2 asks for memory
from as many on (`CHOSEN_FROM`)."""

_LARGEST = 64 << 20
"""Bytes of a message up to which all of its memory is set aside when it begins."""

_SIZE = 16 << 30
"""Bytes in all; only pages that were written take memory."""

_ALIGNED = 64
_EVEN = 8
"""Bytes of the largest element of a tensor: those that lie unevenly are copied."""


class MessageMemory(Region):
    """A region of blocks, each of one message, and free when nobody looks at it any more.

    Its number, like that of no memory of a client's, is below zero. What a client announces takes
    room, but no memory before it comes; without room, messages lie elsewhere.
    """

    def __init__(self) -> None:
        descriptor = os.memfd_create("penstock-messages", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, descriptor)
        os.ftruncate(descriptor, _SIZE)
        super().__init__(-os.fstat(descriptor).st_ino, "", _SIZE)
        memory = mmap.mmap(descriptor, 0)
        self._descriptor = descriptor
        self._bytes = memoryview(memory)
        self._blocks = BlockAllocator(_SIZE, partial(memory.madvise, mmap.MADV_REMOVE))
        self._views = BlockViews(self._blocks.free)

    @property
    def used(self) -> int:
        """Messages that somebody looks at."""
        return self._blocks.used

    @property
    def exclusive(self) -> bool:
        return True

    @property
    def file(self) -> SharedFile:
        return SharedFile(self._descriptor, 0, self.byte_size)

    def slice(self, offset: int, size: int) -> RegionSlice:
        raise AssertionError("whoever has a message knows where its tensors lie")

    def reserve(self, size: int, contents: int) -> memoryview | None:
        """Memory for a message whose first tensor begins at `contents`; `None` for want of room."""
        if not WORTH <= size <= _LARGEST:
            return None
        before = -contents % _ALIGNED
        offset = self._blocks.take(size + before)
        if offset is None:
            return None
        return self._views.over(self._bytes, offset, offset + before, size)

    def place(self, message: Buffer, begin: int, tensor: Buffer) -> RegionSlice | None:
        """Where a tensor lies that begins at `begin` of a message; `None` where models need a copy.

        Which is so in other memory, and for elements that lie unevenly in this one.
        """
        view = self._views.find(message)
        if view is None or (view.offset + begin) % _EVEN:
            return None
        return HostSlice(self, view.offset + begin, memoryview(tensor))
