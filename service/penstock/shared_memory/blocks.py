"""The block allocator of an arena."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable

_SMALLEST = 16
"""log2 of the smallest block."""

_KEEP = 64 << 20
"""Free blocks larger than this are returned to the system instead of kept warm."""

_KEEP_IN_ALL = 256 << 20
"""So are blocks that are freed while so many bytes are kept already."""


class BlockAllocator:
    """Allocates blocks of powers of two; the block freed last is used first.

    Any thread may take and free. The callback `discard(offset, size)` returns the memory of a free
    block to the system; a later write gets new memory. `may_keep(size)` says whether a free block
    of so many bytes may stay warm beside those of other allocators.
    """

    __slots__ = (
        "_cold",
        "_discard",
        "_end",
        "_freed",
        "_kept",
        "_lock",
        "_may_keep",
        "_orders",
        "_size",
        "_warm",
    )

    def __init__(
        self,
        size: int,
        discard: Callable[[int, int], None],
        may_keep: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self._may_keep = may_keep
        self._size = size
        self._discard = discard
        self._end = 0
        self._kept = 0
        self._orders: dict[int, int] = {}
        self._warm: defaultdict[int, list[int]] = defaultdict(list)
        self._cold: defaultdict[int, list[int]] = defaultdict(list)
        self._freed: deque[int] = deque()
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """Blocks that are in use."""
        return len(self._orders) - len(self._freed)

    @property
    def kept(self) -> int:
        """Bytes of free blocks that are kept warm."""
        return self._kept

    def cool(self) -> None:
        """Return the memory of a warm block, the largest there is, to the system."""
        with self._lock:
            for order in sorted(self._warm, reverse=True):
                if warm := self._warm[order]:
                    self._chill(warm.pop(0), order)
                    self._kept -= 1 << order
                    return

    def _chill(self, offset: int, order: int) -> None:
        self._discard(offset, 1 << order)
        self._cold[order].append(offset)

    def take(self, size: int) -> int | None:
        """The offset of a block of at least so many bytes, or `None` when there is no room."""
        order = max((size - 1).bit_length(), _SMALLEST)
        with self._lock:
            self._sort()
            offset = self._reused(order)
            if offset is None:
                offset = self._fresh(order)
            if offset is None:
                order, offset = self._larger(order)
            if offset is not None:
                self._orders[offset] = order
            return offset

    def free(self, offset: int) -> None:
        """Free a block. Takes no lock that is held, since the finalizer of a view may call it at
        any point of any thread's work, also within `take`.
        """
        self._freed.append(offset)
        while self._freed and self._lock.acquire(blocking=False):
            try:
                self._sort()
            finally:
                self._lock.release()

    def _reused(self, order: int) -> int | None:
        if warm := self._warm[order]:
            self._kept -= 1 << order
            return warm.pop()
        if cold := self._cold[order]:
            return cold.pop()
        return None

    def _larger(self, order: int) -> tuple[int, int | None]:
        """The smallest free block that is larger, where all room has been made into blocks.

        What is not written to takes no memory.
        """
        for larger in sorted({*self._warm, *self._cold}):
            if larger > order and (offset := self._reused(larger)) is not None:
                return larger, offset
        return order, None

    def _fresh(self, order: int) -> int | None:
        offset = self._end
        if offset + (1 << order) > self._size:
            return None
        self._end += 1 << order
        return offset

    def _sort(self) -> None:
        """Sort freed blocks into the free lists."""
        while self._freed:
            offset = self._freed.popleft()
            order = self._orders.pop(offset, None)
            if order is None:  # a reader may free what is free
                continue
            size = 1 << order
            if size > _KEEP or self._kept + size > _KEEP_IN_ALL or not self._may_keep(size):
                self._chill(offset, order)
            else:
                self._kept += size
                self._warm[order].append(offset)
