"""Memory lent to a model process: it maps a region once, and tensors stay in it.

It is memory of a client's, what another model process has written, or the messages that requests
came in, which are theirs alone. The server offers a region when a request first has a tensor in
it, and copies tensors until the process says that it has mapped the region; a process that cannot
is sent copies for ever.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from penstock.core.buffer import Buffer
from penstock.core.region import Region, RegionSlice
from penstock.hosting.link.arena_regions import BorrowedRegion
from penstock.shared_memory.block_views import Block, BlockViews

Offer = tuple[int, str, int, int, bool]
"""Number of a region, the file that another process can open, offset in it, bytes, and whether it
is `exclusive`."""


class Lender:
    """The server's side of one link: which regions the process has mapped.

    Clients look after their memory themselves; any other is kept until the borrower gives it
    back. Who `repeats` requests, and so needs them as they came, lends nothing exclusively.
    """

    def __init__(
        self,
        offer: Callable[[Offer], None],
        withdraw: Callable[[int], None],
        *,
        repeats: bool = False,
    ) -> None:
        self._offer = offer
        self._withdraw = withdraw
        self._repeats = repeats
        self._loop = asyncio.get_running_loop()
        self._offered: dict[int, weakref.ref[Region]] = {}
        self._lent: set[int] = set()
        self._kept: defaultdict[tuple[int, int], list[RegionSlice]] = defaultdict(list)

    @property
    def kept(self) -> int:
        """Blocks of other processes that this one may still look at."""
        return sum(map(len, self._kept.values()))

    def lends(self, place: RegionSlice) -> bool:
        """Whether the process sees this memory; it is offered the region if it was not yet."""
        region = place.region
        number = region.number
        if number in self._lent:
            return True
        if number not in self._offered and not (self._repeats and region.exclusive):
            self._begin(region)
        return False

    def keep(self, places: Iterable[RegionSlice]) -> None:
        """These are lent now, and come back unless they are of clients."""
        for place in places:
            if place.region.number < 0:
                self._kept[place.region.number, place.offset].append(place)

    def returned(self, number: int, offset: int) -> RegionSlice:
        """The process looks at a block no longer."""
        kept = self._kept[number, offset]
        place = kept.pop()
        if not kept:
            del self._kept[number, offset]
        return place

    def close(self) -> None:
        """The process is gone, and looks at nothing."""
        self._kept.clear()

    def accepted(self, number: int) -> None:
        """The process has mapped a region."""
        if number in self._offered:
            self._lent.add(number)

    def _begin(self, region: Region) -> None:
        number, file = region.number, region.file
        if file is None:  # a device's memory
            return
        self._offered[number] = weakref.ref(region, lambda _: self._ended(number))
        path = f"/proc/{os.getpid()}/fd/{file.descriptor}"
        self._offer((number, path, file.offset, file.byte_size, region.exclusive))

    def _ended(self, number: int) -> None:
        """The region is gone, in whichever thread has let go of it last."""
        with suppress(RuntimeError):  # the loop may be closed by then
            self._loop.call_soon_threadsafe(self._end, number)

    def _end(self, number: int) -> None:
        del self._offered[number]
        self._lent.discard(number)
        self._withdraw(number)


class Borrower:
    """The model process's side: the regions that it has mapped."""

    def __init__(self) -> None:
        self._regions: dict[int, BorrowedRegion] = {}
        self.views = BlockViews(self._ended)
        self.on_return: Callable[[Block], None] | None = None
        """Called when the last view of what has to come back is gone, in any thread."""

    def take(self, offer: Any) -> int | None:
        """Map a region that is offered; its number, or `None` when that cannot be done."""
        number, path, offset, size, exclusive = offer
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            region = BorrowedRegion(number, descriptor, offset, size, exclusive)
        except (OSError, ValueError):
            os.close(descriptor)
            return None
        self._regions[number] = region
        return int(number)

    def give_back(self, number: int) -> None:
        """The server has no such region any more."""
        if region := self._regions.pop(number, None):
            region.close()

    def slice(self, number: int, offset: int, size: int) -> RegionSlice | None:
        """Where an output goes; `None` when the region is gone, as is then its request."""
        region = self._regions.get(number)
        return None if region is None else region.slice(offset, size)

    def view(self, number: int, offset: int, size: int) -> Buffer:
        """An input, for the model alone; zeros when the memory or the request's client is gone."""
        region = self._regions.get(number)
        if region is not None and region.exclusive:
            return self.views.over(region.memory, (number, offset), offset, size)
        try:
            memory = bytearray(size) if region is None else region.private(offset, size)
        except (OSError, ValueError):
            memory = bytearray(size)
        return self._watching(memory, number, offset) if number < 0 else memory

    def _watching(self, memory: Buffer, number: int, offset: int) -> memoryview:
        """A view of `memory` that is given back with the last one made of it."""
        return self.views.over(memoryview(memory), (number, offset), 0, len(memory), own=True)

    def _ended(self, block: Block) -> None:
        if self.on_return is not None:
            self.on_return(block)
