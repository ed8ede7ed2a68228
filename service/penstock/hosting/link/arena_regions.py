"""Memory of a model process as regions: its output arena, and the regions that it has mapped."""

from __future__ import annotations

import mmap
import os
import weakref

from penstock.core.region import HostSlice, Region, RegionSlice, SharedFile


class ArenaRegion(Region):
    """The output arena of one model process, as a region that others can map.

    Its number is below zero; numbers of clients' regions are above.
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
        raise AssertionError("the view of a block holds its location")


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
        """A copy-on-write view: the client does not see what a model writes to it.

        Raises `ValueError` or `OSError` when the client has truncated its memory.
        """
        start = self._offset + offset
        before = start % mmap.ALLOCATIONGRANULARITY
        memory = mmap.mmap(
            self._descriptor, before + size, flags=mmap.MAP_PRIVATE, offset=start - before
        )
        return memoryview(memory)[before:]

    def close(self) -> None:
        """Close the file; mappings are released with their last view."""
        os.close(self._descriptor)
