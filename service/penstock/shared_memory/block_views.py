"""Views of shared-memory blocks, with a callback when the last view is garbage-collected."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.core.buffer import Buffer

Block = int | tuple[int, int]
"""The offset of a block in the reader's own arena, or the number of a region and the offset in
it."""


class BlockView:
    """A block with live views, all derived from `array`.

    While it is `returning`, a response is to return it to its writer. With `own` its memory is not
    that of the block itself.
    """

    __slots__ = ("_array", "_memory", "_on_end", "block", "offset", "own", "returning")

    def __init__(
        self,
        block: Block,
        memory: memoryview,
        offset: int,
        array: weakref.ref[object],
        on_end: Callable[[Any], None],
        *,
        own: bool,
    ) -> None:
        self.block = block
        self.offset = offset
        self.own = own
        self.returning = False
        self._memory = memory
        self._array = array
        self._on_end = on_end

    def claim(self) -> None:
        """A response is to return the block; before it is sent, `hold` decides whether it can."""
        self.returning = True

    def hold(self) -> object | None:
        """The array if it is still referenced, else None.

        If it is, the response that has claimed the block must not return it: it is freed with the
        last view, as usual.
        """
        array = self._array()
        if array is not None:
            self.returning = False
        return array

    def give_up(self) -> None:
        """The response that claimed the block is not sent: free it unless it has views."""
        if self.hold() is None:
            self._on_end(self.block)

    def part(self, at: int, size: int) -> memoryview:
        """Bytes of the block, as a view that does not keep it alive."""
        return self._memory[self.offset + at : self.offset + at + size]


class BlockViews:
    """Makes views; the callback `on_end(block)` is called when the last one of a block is gone.

    In any thread. A view keeps its memory mapped, also when the other process has died.
    """

    def __init__(self, on_end: Callable[[Any], None]) -> None:
        self._on_end = on_end
        self._open: dict[int, BlockView] = {}

    def over(
        self, memory: memoryview, block: Block, offset: int, size: int, *, own: bool = False
    ) -> memoryview:
        """A view of the block's bytes, which lie in `memory` at this offset.

        With `own` the memory is not that of the block itself, and cannot be returned with its
        contents.
        """
        array = np.frombuffer(memory, np.uint8, size, offset)
        # numpy keeps `array` as the base of every view of it, so its end is the end of them all.
        key, data = id(array), array.data
        seen = weakref.ref[object](array, lambda _: self._ended(key))
        self._open[key] = BlockView(block, memory, offset, seen, self._on_end, own=own)
        return data

    def find(self, data: Buffer) -> BlockView | None:
        """The view that these bytes belong to, if they are those of a block itself."""
        view = self._open.get(id(data.obj)) if isinstance(data, memoryview) else None
        return None if view is None or view.own else view

    def _ended(self, key: int) -> None:
        view = self._open.pop(key)
        if not view.returning:
            self._on_end(view.block)
