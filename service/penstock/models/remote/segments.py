"""Segments of an object: each is one request, which goes on where it broke."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import aclosing

from penstock.models.remote.bucket import Bucket, BucketError, ObjectChangedError, StoredObject
from penstock.models.remote.part import SegmentFile

logger = logging.getLogger(__name__)

SEGMENT = 8 << 20
"""Bytes of one request; less than that is fetched again after a kill."""
AT_ONCE = 8
"""Requests."""
_TRIES = 6
"""Requests for a segment without one more byte."""
_WAIT_SECONDS = 0.5
"""After the first of them; twice as long after each further one."""

Tell = Callable[[int, int, int], object]
"""Is told of bytes that came, of those that were here already, and of requests that were repeated,
on any thread."""


def segments(size: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each segment of an object."""
    for begin in range(0, size, SEGMENT):
        yield begin, min(begin + SEGMENT, size)


async def fetch_segment(
    bucket: Bucket,
    stored: StoredObject,
    part: SegmentFile,
    slots: asyncio.Semaphore,
    begin: int,
    end: int,
    tell: Tell,
) -> None:
    """Fetch a segment; a broken answer goes on where it broke. Raises as `Bucket.read`."""
    async with slots:
        at, tries = begin, 0
        while at < end:
            try:
                async with aclosing(bucket.read(stored, at, end)) as chunks:
                    async for chunk in chunks:
                        part.write(chunk, at)
                        at, tries = at + len(chunk), 0
                        tell(len(chunk), 0, 0)
            except ObjectChangedError:
                raise
            except BucketError as error:
                tries += 1
                if tries == _TRIES:
                    raise
                tell(0, 0, 1)
                logger.debug("%s; it is asked again from byte %d on", error, at)
                await asyncio.sleep(_WAIT_SECONDS * 2 ** (tries - 1))
        part.finish(begin)
