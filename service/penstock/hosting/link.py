"""Framed messages over one Unix socket: one pass per read, one write per loop turn.

A frame is `total length, header length, kind` (two 32-bit little-endian numbers and a byte), a
marshalled header of plain values, then the tensors' bytes in the order that the header lists
them. Both ends belong to one server, so the header needs no schema beyond `messages`.
"""

from __future__ import annotations

import asyncio
import marshal
import struct
from collections.abc import Callable, Sequence
from typing import Any, cast

from penstock.core.tensor import Buffer

_PREFIX = struct.Struct("<IIB")
_MARSHAL_VERSION = 4
"""Readable by every Python this runs on, so that both ends may be of different versions."""

_JOIN_BELOW = 32 * 1024
"""Smaller parts are joined before they are written; larger ones are passed as they are."""

OnMessage = Callable[[int, Any, memoryview], None]
OnLost = Callable[[], None]


class Link(asyncio.Protocol):
    """One end of the socket. `on_message(kind, header, payload)` is called for each frame.

    The payload's memory stays valid for as long as somebody holds a view of it.
    """

    def __init__(self, on_message: OnMessage, on_lost: OnLost) -> None:
        self._on_message = on_message
        self._on_lost = on_lost
        self._transport: asyncio.WriteTransport | None = None
        self._parts: list[bytes] = []
        self._have = 0
        self._need = 0
        self._out: list[Buffer] = []
        self._loop = asyncio.get_running_loop()

    def send(self, kind: int, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Queue a frame; it leaves with all others of this loop turn. Dropped when the end is."""
        if self._transport is None:
            return
        head = marshal.dumps(header, _MARSHAL_VERSION)
        size = _PREFIX.size + len(head) + sum(map(len, payload))
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(_PREFIX.pack(size, len(head), kind) + head)
        self._out.extend(payload)

    def flush(self) -> None:
        """Write what is queued."""
        out, self._out = self._out, []
        if out and self._transport is not None:
            self._transport.writelines(_joined(out))

    def close(self) -> None:
        """Close the socket after what is queued has left."""
        if self._transport is not None:
            self.flush()
            self._transport.close()

    # -- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        if self._parts:
            self._parts.append(data)
            self._have += len(data)
            if self._have < self._need:
                return
            data = b"".join(self._parts)
            self._parts = []
        at = self._read_frames(data)
        if at < len(data):
            self._keep(data[at:])

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._out.clear()
        self._on_lost()

    def _read_frames(self, data: bytes) -> int:
        """Handle every whole frame; where the first incomplete one begins."""
        view, at, end = memoryview(data), 0, len(data)
        while end - at >= _PREFIX.size:
            size, head, kind = _PREFIX.unpack_from(data, at)
            if end - at < size:
                break
            begin = at + _PREFIX.size
            header = marshal.loads(view[begin : begin + head])
            self._on_message(kind, header, view[begin + head : at + size])
            at += size
        return at

    def _keep(self, rest: bytes) -> None:
        """Remember an incomplete frame, and how much of it there must be before it is looked at."""
        self._parts = [rest]
        self._have = len(rest)
        whole = len(rest) >= _PREFIX.size
        self._need = _PREFIX.unpack_from(rest)[0] if whole else _PREFIX.size


def _joined(parts: list[Buffer]) -> list[Buffer]:
    """The same bytes in fewer parts: runs of small ones become one."""
    joined: list[Buffer] = []
    run: list[Buffer] = []
    for part in parts:
        if len(part) < _JOIN_BELOW:
            run.append(part)
            continue
        if run:
            joined.append(b"".join(run))
            run = []
        joined.append(part)
    if run:
        joined.append(b"".join(run))
    return joined
