"""Segments of an object: each is one request, which goes on where it broke."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import aclosing, closing
from typing import Any

from penstock.models.remote.bucket import Bucket, BucketError, ObjectChangedError, StoredObject
from penstock.models.remote.part import SEGMENT, SegmentFile

logger = logging.getLogger(__name__)

AT_ONCE = 8
"""Requests."""
_BETTER = 1.3
"""How much quicker twice as many requests must be."""
_PLENTY = 24.0
"""Segments a second by one request that are about half of what a core can write and hash: more
requests would take more of the processor, and hardly be quicker."""
_LONG = 64
"""Segments of one request, where one request at a time does: each begins with some waiting."""
_TRIES = 6
"""Requests for a segment without one more byte."""
_WAIT_SECONDS = 0.5
"""After the first of them; twice as long after each further one."""

Tell = Callable[[int, int, int], object]
"""Is told of bytes that came, of those that were here already, and of requests that were repeated,
on any thread."""

Take = Callable[[Any], None]
"""Takes the bytes that come, on any thread."""
Receive = Callable[[Bucket, StoredObject, int, int, Take], Coroutine[Any, Any, None]]
"""Has bytes of an object taken, from a place to another; raises as `Bucket.read` and who takes."""


def segments(size: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each segment of an object."""
    for begin in range(0, size, SEGMENT):
        yield begin, min(begin + SEGMENT, size)


class Width:
    """How many whole segments are fetched at once: one, and more as long as that is quicker.

    A store that is near sends as much as two cores take by two requests, and eight of them take a
    third more of the processor; one that is far away needs them. Knows no clock.
    """

    def __init__(self) -> None:
        self.now = 1
        self._settled, self._connected = False, False
        self._rate, self._count = 0.0, 0
        self._since: float | None = None

    @property
    def segments(self) -> int:
        """How many segments a request may be for."""
        return _LONG if self._settled and self.now == 1 else 1

    def begun(self, at: float) -> None:
        """Note when the first segment is asked for."""
        if self._since is None:
            self._since = at

    def finished(self, at: float) -> int:
        """Count a segment that was whole at that time; by how much the width changes."""
        if self._settled or self._since is None:
            return 0
        self._count += 1
        before, rate = self.now, self._count / max(at - self._since, 1e-6)
        if before == 1 and rate > _PLENTY:
            self._settled = True
        elif not self._connected:  # which the first segment had to wait for
            self._connected, self._since, self._count = True, at, 0
        elif self._count == 2 * before:
            better = rate > self._rate * _BETTER
            self.now = min(2 * before, AT_ONCE) if better else before // 2
            self._settled = not better or self.now == AT_ONCE == before
            self._rate, self._count, self._since = rate, 0, at
        return self.now - before


class Lanes:
    """Lets as many in as its `Width` says."""

    def __init__(self) -> None:
        self._width = Width()
        self._slots = asyncio.Semaphore(self._width.now)
        self._too_many = 0

    @property
    def segments(self) -> int:
        """How many segments who is inside may ask for by one request."""
        return self._width.segments

    async def __aenter__(self) -> None:
        await self._slots.acquire()
        self._width.begun(time.monotonic())

    async def __aexit__(self, *_: object) -> None:
        change = self._width.finished(time.monotonic())
        self._too_many -= min(change, 0)
        for _each in range(1 + max(change, 0)):
            if self._too_many:
                self._too_many -= 1
            else:
                self._slots.release()


async def receive(bucket: Bucket, stored: StoredObject, begin: int, end: int, take: Take) -> None:
    """Have bytes taken on this event loop, where they may be cancelled."""
    async with aclosing(bucket.read(stored, begin, end)) as chunks:
        async for chunk in chunks:
            take(chunk)


def received_on(threads: Executor) -> Receive:
    """Have bytes taken on threads, which takes a third less time; who cancels leaves the thread."""

    def taken(bucket: Bucket, stored: StoredObject, begin: int, end: int, take: Take) -> None:
        with closing(bucket.read_blocking(stored, begin, end)) as chunks:
            for chunk in chunks:
                take(chunk)

    async def on_thread(*given: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(threads, taken, *given)

    return on_thread


async def _checked(
    receive: Receive, bucket: Bucket, stored: StoredObject, begin: int, end: int, take: Take
) -> None:
    """Have some of the bytes taken, and none beyond: a wrong store, or what is before it, may send
    any number."""
    left = end - begin

    def counted(chunk: Any) -> None:
        nonlocal left
        left -= len(chunk)
        if left < 0:
            raise BucketError(f"{what} more bytes than it was asked for")
        take(chunk)

    what = f"'{bucket.address.text}': {stored.key} the store sends"
    await receive(bucket, stored, begin, end, counted)
    if left == end - begin:
        raise BucketError(f"{what} nothing of what it was asked for")


async def fetch_segments(
    bucket: Bucket,
    stored: StoredObject,
    part: SegmentFile,
    begin: int,
    end: int,
    tell: Tell,
    receive: Receive = receive,
) -> None:
    """Fetch a segment, or several in a row, by one request; a broken answer goes on where it broke.

    Raises as `Bucket.read`.
    """
    at, tries = begin, 0

    def take(chunk: Any) -> None:
        nonlocal at, begin, tries
        part.write(chunk, at)
        at, tries = at + len(chunk), 0
        tell(len(chunk), 0, 0)
        while begin + SEGMENT <= at:
            part.finish(begin)
            begin += SEGMENT

    while at < end:
        try:
            await _checked(receive, bucket, stored, at, end, take)
        except ObjectChangedError:
            raise
        except BucketError as error:
            tries += 1
            if tries == _TRIES:
                raise
            tell(0, 0, 1)
            logger.debug("%s; it is asked again from byte %d on", error, at)
            await asyncio.sleep(_WAIT_SECONDS * 2 ** (tries - 1))
    if begin < end:
        part.finish(begin)
