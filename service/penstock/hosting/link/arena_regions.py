"""Memory of a model process as regions: what it has written, and what it has mapped."""

from __future__ import annotations

import mmap
import os
import weakref

from penstock.core.region import HostSlice, Region, RegionSlice, SharedFile


class ArenaRegion(Region):
    """What one model process has written, as memory that others can map.

    Its number, like that of no memory of a client's, is below zero.
    """

    def __init__(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        super().__init__(-status.st_ino, "", status.st_size)
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)

    @property
    def file(self) -> SharedFile:
        return SharedFile(self._descriptor, 0, self.byte_size)

    def slice(self, offset: int, size: int) -> RegionSlice:
        raise AssertionError("whoever views a block knows where it lies")


class BorrowedRegion(Region):
    """A region of the server's, mapped in the model process."""

    def __init__(
        self, number: int, descriptor: int, offset: int, size: int, exclusive: bool
    ) -> None:
        super().__init__(number, "", size)
        self.memory = memoryview(mmap.mmap(descriptor, size, offset=offset))
        self._exclusive = exclusive
        self._descriptor = descriptor
        self._offset = offset

    @property
    def exclusive(self) -> bool:
        return self._exclusive

    def slice(self, offset: int, size: int) -> RegionSlice:
        return HostSlice(self, offset, self.memory[offset : offset + size])

    def private(self, offset: int, size: int) -> memoryview:
        """A view that a model may write to without the client seeing it.

        Only the pages that it does write to are copied. Raises `ValueError` or `OSError` when the
        client has cut its memory off.
        """
        start = self._offset + offset
        before = start % mmap.ALLOCATIONGRANULARITY
        memory = mmap.mmap(
            self._descriptor, before + size, flags=mmap.MAP_PRIVATE, offset=start - before
        )
        return memoryview(memory)[before:]

    def close(self) -> None:
        """Let go of the file; mappings go with the last view of them."""
        os.close(self._descriptor)
