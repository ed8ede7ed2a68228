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
_LONG, _LONGEST = 16, 64
"""Segments of one request, where one request at a time does, since each begins with some waiting;
the second where the one before it brought plenty throughout."""
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
        self._settled = self._plenty = self._stays = False
        self._rate, self._count = 0.0, 0
        self._since: float | None = None

    @property
    def segments(self) -> int:
        """How many segments a request may be for."""
        if not self._settled or self.now > 1:
            return 1
        return _LONGEST if self._stays else _LONG

    def finished(self, began: float, at: float, segments: int) -> int:
        """Count what a request brought between two times; by how much the width changes."""
        if self._settled and not self._plenty:
            return 0
        if self.now == 1 and segments / max(at - began, 1e-6) > _PLENTY:
            self._settled, self._plenty, self._stays = True, True, self._plenty
        elif self._plenty or self._since is None:  # it came quicker before, or had to connect first
            self._settled = self._plenty = self._stays = False
            self._since, self._count = at, 0
        else:
            self._count += segments
            if self._count >= 2 * self.now:
                return self._compare(self._count / max(at - self._since, 1e-6), at)
        return 0

    def _compare(self, rate: float, at: float) -> int:
        before, better = self.now, rate > self._rate * _BETTER
        self.now = min(2 * before, AT_ONCE) if better else before // 2
        self._settled = not better or self.now == AT_ONCE == before
        self._rate, self._count, self._since = rate, 0, at
        return self.now - before


class Lanes:
    """Lets as many fetch as its `Width` says."""

    def __init__(self) -> None:
        self._width = Width()
        self._slots = asyncio.Semaphore(self._width.now)
        self._too_many = 0

    async def fetch(self, some: Callable[[int], Coroutine[Any, Any, int]]) -> None:
        """Have some segments fetched, at most so many as it is told; it answers how many came."""
        await self._slots.acquire()
        began, segments = time.monotonic(), 0
        try:
            segments = await some(self._width.segments)
        finally:
            change = self._width.finished(began, time.monotonic(), segments) if segments else 0
            self._release(change)

    def _release(self, change: int) -> None:
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


class _Coming:
    """Segments in a row while their bytes come: `at` is where the next one belongs."""

    def __init__(self, part: SegmentFile, begin: int, end: int, tell: Tell, whence: str) -> None:
        self._part, self._begin, self._end, self._tell = part, begin, end, tell
        self._whence = whence
        self.at = begin

    def take(self, chunk: Any) -> None:
        """Write bytes; raises `BucketError` for more than were asked for."""
        size = len(chunk)
        if self.at + size > self._end:
            raise BucketError(f"{self._whence} more bytes than it was asked for")
        self._part.write(chunk, self.at)
        self.at += size
        self._tell(size, 0, 0)
        while self._begin + SEGMENT <= self.at or self._begin < self._end == self.at:
            self._part.finish(self._begin)
            self._begin += SEGMENT

    def check_growth(self, before: int) -> None:
        """Raise `BucketError` if an answer brought nothing: it would be asked for without end."""
        if self.at == before:
            raise BucketError(f"{self._whence} nothing of what it was asked for")


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

    Raises as `Bucket.read`, and `BucketError` for answers of another length: a wrong store, or what
    is before it, may send any number of bytes.
    """
    whence = f"'{bucket.address.text}': {stored.key} the store sends"
    coming = _Coming(part, begin, end, tell, whence)
    tries, before = 0, begin
    while coming.at < end:
        try:
            await receive(bucket, stored, before, end, coming.take)
            coming.check_growth(before)
        except ObjectChangedError:
            raise
        except BucketError as error:
            tries = tries + 1 if coming.at == before else 1
            if tries == _TRIES:
                raise
            tell(0, 0, 1)
            logger.debug("%s; it is asked again from byte %d on", error, coming.at)
            await asyncio.sleep(_WAIT_SECONDS * 2 ** (tries - 1))
        before = coming.at
