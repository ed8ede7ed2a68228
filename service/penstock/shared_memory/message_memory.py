"""Memory for large request messages that model processes map, so that tensors are not copied."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable
from functools import partial

from penstock.core.buffer import Buffer
from penstock.core.region import HostSlice, Region, RegionSlice, SharedFile
from penstock.shared_memory.block_views import BlockViews
from penstock.shared_memory.blocks import BlockAllocator
from penstock.shared_memory.sealed import seal_size

WORTH = 32 << 10
"""Bytes of a message from which this costs less than a copy of its tensors; HTTP/2 asks for memory
from the same size on (`CHOSEN_FROM`)."""

_LARGEST = 64 << 20
"""Bytes of a message up to which all of its memory is reserved when it begins."""

_SIZE = 16 << 30
"""Bytes in all; only pages that were written take memory."""

_ALIGNED = 64
_EVEN = 8
"""Bytes of the largest element of a tensor: tensors that are not aligned to it are copied."""


class MessageMemory(Region):
    """A region of blocks, one for each message, freed with the last view.

    Its number is below zero; numbers of clients' regions are above. A message that is announced
    takes address space at once, and memory as its bytes arrive; without space it is buffered
    elsewhere. `readers` are the models whose processes may map it.
    """

    def __init__(
        self,
        readers: frozenset[str] | None = None,
        may_keep: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self._readers = readers
        descriptor = os.memfd_create("penstock-messages", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        weakref.finalize(self, os.close, descriptor)
        os.ftruncate(descriptor, _SIZE)
        seal_size(descriptor)
        super().__init__(-os.fstat(descriptor).st_ino, "", _SIZE)
        memory = mmap.mmap(descriptor, 0)
        self._descriptor = descriptor
        self._bytes = memoryview(memory)
        discard = partial(memory.madvise, mmap.MADV_REMOVE)
        self._blocks = BlockAllocator(_SIZE, discard, may_keep)
        self._views = BlockViews(self._blocks.free)

    @property
    def used(self) -> int:
        """Number of messages with a view."""
        return self._blocks.used

    @property
    def kept(self) -> int:
        """Bytes of free blocks that are kept warm."""
        return self._blocks.kept

    def cool(self) -> None:
        """Return the memory of one of these to the system."""
        self._blocks.cool()

    @property
    def exclusive(self) -> bool:
        return True

    @property
    def readers(self) -> frozenset[str] | None:
        return self._readers

    @property
    def file(self) -> SharedFile:
        return SharedFile(self._descriptor, 0, self.byte_size)

    def slice(self, offset: int, size: int) -> RegionSlice:
        raise AssertionError("the view of a message holds the location of its tensors")

    def reserve(self, size: int, contents: int) -> memoryview | None:
        """Memory for a message whose first tensor begins at `contents`; `None` without room."""
        if not WORTH <= size <= _LARGEST:
            return None
        before = -contents % _ALIGNED
        offset = self._blocks.take(size + before)
        if offset is None:
            return None
        return self._views.over(self._bytes, offset, offset + before, size)

    def place(self, message: Buffer, begin: int, tensor: Buffer) -> RegionSlice | None:
        """The location of a tensor that begins at `begin` of a message; `None` if it needs a copy:
        in other memory, and where its elements are not aligned.
        """
        view = self._views.find(message)
        if view is None or (view.offset + begin) % _EVEN:
            return None
        return HostSlice(self, view.offset + begin, memoryview(tensor))
