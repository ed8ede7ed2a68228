"""Lending of memory regions to a model process: it maps a region once, and tensors stay in it.

A region is a client's shared memory, the arena of another model process, or the memory of request
messages, which is exclusive to one request. The server offers a region when a request first has a
tensor in it, and sends copies until the process confirms that it has mapped the region; to a
process that cannot map it, for ever. An offer comes with its file, by the socket of the pulse: a
process can open no other of the server's.
"""

from __future__ import annotations

import asyncio
import os
import struct
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress

from penstock.core.buffer import Buffer
from penstock.core.region import Region, RegionSlice, SharedFile
from penstock.hosting.link.arena_regions import BorrowedRegion
from penstock.shared_memory.block_views import Block, BlockViews

Offer = tuple[int, int, int, bool]
"""Number of a region, its offset in the file, bytes, and whether it is `exclusive`."""

_OFFER = struct.Struct("<qQQ?")

OFFER_SIZE = _OFFER.size


def pack_offer(region: Region, file: SharedFile) -> bytes:
    """The offer of a region, to be sent with its file."""
    return _OFFER.pack(region.number, file.offset, file.byte_size, region.exclusive)


def unpack_offer(data: bytes) -> Offer:
    """The offer that `pack_offer` packed."""
    number, offset, size, exclusive = _OFFER.unpack(data)
    return number, offset, size, exclusive


class Lender:
    """The server's side of one link: tracks which regions the process has mapped.

    `offer` sends a packed offer and a descriptor, and says whether it could. To a process of this
    `model` only regions are lent that it may read.
    Clients manage their own memory; any other block is kept until the borrower returns it. With
    `repeats` requests are sent again and must be unchanged, so nothing is lent exclusively.
    """

    def __init__(
        self,
        offer: Callable[[bytes, int], bool],
        withdraw: Callable[[int], None],
        *,
        model: str = "",
        repeats: bool = False,
    ) -> None:
        self._model = model
        self._offer = offer
        self._withdraw = withdraw
        self._repeats = repeats
        self._loop = asyncio.get_running_loop()
        self._offered: dict[int, weakref.ref[Region]] = {}
        self._lent: set[int] = set()
        self._kept: defaultdict[tuple[int, int], list[RegionSlice]] = defaultdict(list)

    @property
    def kept(self) -> int:
        """Number of other processes' blocks that this process has not returned."""
        return sum(map(len, self._kept.values()))

    def lends(self, place: RegionSlice) -> bool:
        """Whether the process has mapped this memory; if it was not offered yet, offer it."""
        region = place.region
        number = region.number
        if number in self._lent:
            return True
        refused = self._repeats and region.exclusive
        if not refused and number not in self._offered and self._may_read(region):
            self._begin(region)
        return False

    def _may_read(self, region: Region) -> bool:
        return region.readers is None or self._model in region.readers

    def keep(self, places: Iterable[RegionSlice]) -> None:
        """Keep lent blocks alive until they are returned; clients keep their own."""
        for place in places:
            if place.region.number < 0:
                self._kept[place.region.number, place.offset].append(place)

    def returned(self, number: int, offset: int) -> RegionSlice:
        """The process has returned a block; its location."""
        kept = self._kept[number, offset]
        place = kept.pop()
        if not kept:
            del self._kept[number, offset]
        return place

    def close(self) -> None:
        """The process is gone: release all blocks."""
        self._kept.clear()

    def accepted(self, number: int) -> None:
        """The process has mapped a region, which may have been released meanwhile."""
        if number in self._offered:
            self._lent.add(number)
        else:
            self._withdraw(number)

    def _begin(self, region: Region) -> None:
        number, file = region.number, region.file
        if file is None:  # a device's memory
            return
        self._offered[number] = weakref.ref(region, lambda _: self._ended(number))
        if not self._offer(pack_offer(region, file), file.descriptor):
            del self._offered[number]

    def _ended(self, number: int) -> None:
        """The region was released, in any thread."""
        with suppress(RuntimeError):  # the loop may be closed by then
            self._loop.call_soon_threadsafe(self._end, number)

    def _end(self, number: int) -> None:
        del self._offered[number]
        if number in self._lent:
            self._lent.discard(number)
            self._withdraw(number)


class Borrower:
    """The model process's side: maps regions and makes views of them."""

    def __init__(self) -> None:
        self._regions: dict[int, BorrowedRegion] = {}
        self.views = BlockViews(self._ended)
        self.on_return: Callable[[Block], None] | None = None
        """Callback, in any thread, for the last view of a block that has to be returned."""

    def take(self, offer: Offer, descriptor: int) -> int | None:
        """Map an offered region; its number, or `None` when it cannot be mapped.

        The descriptor is closed with the region. Any thread may call this.
        """
        number, offset, size, exclusive = offer
        try:
            region = BorrowedRegion(number, descriptor, offset, size, exclusive)
        except (OSError, ValueError):
            os.close(descriptor)
            return None
        self._regions[number] = region
        return number

    def give_back(self, number: int) -> None:
        """Unmap a region that the server has released."""
        if region := self._regions.pop(number, None):
            region.close()

    def slice(self, number: int, offset: int, size: int) -> RegionSlice | None:
        """The location of an output; `None` when the region is gone, and with it its request."""
        region = self._regions.get(number)
        return None if region is None else region.slice(offset, size)

    def view(self, number: int, offset: int, size: int) -> Buffer:
        """An input, private to the model; zeros when the memory or the client is gone."""
        region = self._regions.get(number)
        if region is not None and region.exclusive:
            return self.views.over(region.memory, (number, offset), offset, size)
        try:
            memory = bytearray(size) if region is None else region.private(offset, size)
        except (OSError, ValueError):
            memory = bytearray(size)
        return self._watching(memory, number, offset) if number < 0 else memory

    def _watching(self, memory: Buffer, number: int, offset: int) -> memoryview:
        """A view of `memory` that is returned when the last view derived from it is gone."""
        return self.views.over(memoryview(memory), (number, offset), 0, len(memory), own=True)

    def _ended(self, block: Block) -> None:
        if self.on_return is not None:
            self.on_return(block)
