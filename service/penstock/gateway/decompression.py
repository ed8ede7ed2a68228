"""Decompression of request bodies, within a size for each and a memory for all together (HI-17)."""

from __future__ import annotations

import asyncio
import zlib

from penstock.core.buffer import Buffer
from penstock.core.errors import InvalidRequestError
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.memory_quota import MemoryQuota, Share

_AT_ONCE = 8
"""Bodies of the largest size that there is memory for."""

_SMALL = 1 << 20
"""Bytes of a small body when decompressed: small ones do not wait for large ones."""

_SMALL_AT_ONCE = 64

_LARGE_PACKED = 1 << 16
"""Compressed bytes from which a body is decompressed in a thread without a try."""

_MOST_FOLDED = 1032
"""Bytes that one byte of deflate can become."""

_PIECE = 1 << 20
"""Bytes that are decompressed at a time."""

_MAX_MEMBERS = 65_536
"""Members of a compressed body, each of which costs some microseconds even if it is empty."""

_FIRST_STEP = 4 << 10
"""Bytes of a member that are decompressed first."""

_ANY_HEADER = 15 + 32  # zlib's code for either a zlib or a gzip header


class Decompression:
    """Decompresses bodies to `limit` bytes each. What they hold together is bounded.

    A kilobyte may become a megabyte: without a bound, those who send a little could fill the memory
    with what waits to be parsed, or for its model. It counts among the bodies in flight as well, so
    that others wait for it to end.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._large = MemoryQuota(_AT_ONCE * limit)
        self._small = MemoryQuota(_SMALL_AT_ONCE * _SMALL)

    async def plain(self, call: HttpCall, packed: Buffer) -> tuple[bytearray, Share]:
        """The decompressed body of `call`, and its share of the memory, which the caller releases.

        Corrupt data counts as empty and a truncated stream as the part that is there: the JSON
        parser then reports the error. What follows a stream and is none is refused. Raises
        `InvalidRequestError`, also for more than the limit, and `ClientDisconnectError` if the
        client goes while it waits for memory.
        """
        if len(packed) < _LARGE_PACKED:
            small = min(self.limit, _SMALL)
            plain = decompress(packed, small)
            if len(plain) <= small:
                share = self._small.ask(len(plain), _granted_later)
                if not share.held:
                    share.release()
                    size, plain = len(plain), bytearray()  # not kept while it waits
                    share = await _held(self._small, size, call)
                    plain = decompress(packed, size)
                share.count(call.bodies)
                return plain, share
        return await self._plain_large(call, packed)

    async def _plain_large(self, call: HttpCall, packed: Buffer) -> tuple[bytearray, Share]:
        """As `plain`, in a thread, once there is memory for the most that may come of it."""
        most = min(self.limit, _MOST_FOLDED * len(packed))
        share = await _held(self._large, most, call)
        try:
            plain = await asyncio.to_thread(decompress, packed, self.limit)
            if len(plain) > self.limit:
                raise InvalidRequestError(
                    "decompressed request size exceeds the maximum allowed value of"
                    f" {self.limit} bytes. Use --http-max-input-size to increase the limit."
                )
        except BaseException:
            share.release()
            raise
        share.shrink(len(plain))
        share.count(call.bodies)
        return plain, share


async def _held(quota: MemoryQuota, size: int, call: HttpCall) -> Share:
    """A share of a quota, once it is held. Raises `ClientDisconnectError`."""
    granted = asyncio.get_running_loop().create_future()
    share = quota.ask(size, lambda: _wake(granted))
    try:
        await call.until(granted)
    except BaseException:
        share.release()
        raise
    return share


def _wake(granted: asyncio.Future[None]) -> None:
    if not granted.done():
        granted.set_result(None)


def _granted_later() -> None:
    """The callback of a share that is used only if it is held at once."""


def decompress(body: Buffer, limit: int) -> bytearray:
    """The decompressed body; cut off at `limit` + 1 bytes if it is larger.

    It may have several members, one behind the other (RFC 1952, section 2.2). Raises
    `InvalidRequestError` for anything else behind the first.
    """
    packed, plain = memoryview(body), bytearray()
    at, ended = _decompress_member(packed, 0, limit, plain)
    members = 1
    while ended and at < len(packed) and len(plain) <= limit:
        if members == _MAX_MEMBERS:
            raise InvalidRequestError(
                f"compressed request body has more than {_MAX_MEMBERS} members"
            )
        at, ended = _decompress_member(packed, at, limit, plain)
        members += 1
        if not ended and len(plain) <= limit:
            raise InvalidRequestError(
                "compressed request body goes on behind its end with what is no whole gzip or"
                " deflate stream"
            )
    return plain


def _decompress_member(
    packed: memoryview, at: int, limit: int, plain: bytearray
) -> tuple[int, bool]:
    """Append the content of a member; returns where it ends, and whether it does.

    It begins at `at`; if it is corrupt it is empty, and does not end. No more is appended once
    there are `limit` + 1 bytes. What is appended grows in place, so that it never lies there twice.
    """
    machine = zlib.decompressobj(_ANY_HEADER)
    begin, step = len(plain), _FIRST_STEP
    # In steps that grow, since the machine copies what it is fed behind the member's end.
    while not machine.eof and at < len(packed) and len(plain) <= limit:
        end = min(at + step, len(packed))
        part: Buffer = packed[at:end]
        while len(part) and len(plain) <= limit:
            try:
                plain += machine.decompress(part, min(limit + 1 - len(plain), _PIECE))
            except zlib.error:
                del plain[begin:]
                return at, False
            part = machine.unconsumed_tail
        at = end - len(machine.unused_data)
        step *= 2
    return at, machine.eof
