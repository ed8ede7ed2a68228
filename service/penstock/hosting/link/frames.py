"""The frame codec of the link between server and model process.

A frame is `total length, header length, kind` (two 32-bit little-endian numbers and a byte), a
marshalled header of plain values, then the tensors' bytes in the order that the header lists
them. Both ends belong to one server, so the header needs no schema beyond `messages`.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.core.buffer import Buffer

_PREFIX = struct.Struct("<IIB")
_MARSHAL_VERSION = 4
"""Readable by every Python this runs on, so that both ends may be of different versions."""

_JOIN_BELOW = 32 * 1024
"""Smaller parts are joined before they are written; larger ones are passed as they are."""

Message = tuple[int, Any, memoryview]
"""Kind, header and payload; the payload's memory stays valid while it has a view."""


def encode(kind: int, header: Any, payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """Encode a frame, as parts to be written in order."""
    head = marshal.dumps(header, _MARSHAL_VERSION)
    size = _PREFIX.size + len(head) + sum(map(len, payload))
    return [_PREFIX.pack(size, len(head), kind) + head, *payload]


def joined(parts: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes in fewer parts: runs of small ones become one."""
    result: list[Buffer] = []
    run: list[Buffer] = []
    for part in parts:
        if len(part) < _JOIN_BELOW:
            run.append(part)
            continue
        if run:
            result.append(b"".join(run))
            run = []
        result.append(part)
    if run:
        result.append(b"".join(run))
    return result


class FrameReader:
    """Parses messages from a stream of bytes, wherever it is cut."""

    def __init__(self) -> None:
        self._parts: list[bytes | bytearray] = []
        self._have = 0
        self._need = 0

    def feed(self, data: bytes | bytearray) -> Iterator[Message]:
        """Yield every complete message; to be consumed before the next call.

        Payloads are views of `data`, writable when it is a bytearray.
        """
        if self._parts:
            self._parts.append(data)
            self._have += len(data)
            if self._have < self._need:
                return
            data = type(data)().join(self._parts)
            self._parts = []
        view, at, end = memoryview(data), 0, len(data)
        while end - at >= _PREFIX.size:
            size, head, kind = _PREFIX.unpack_from(data, at)
            if end - at < size:
                break
            begin = at + _PREFIX.size
            yield kind, marshal.loads(view[begin : begin + head]), view[begin + head : at + size]
            at += size
        if at < end:
            self._keep(data[at:])

    def _keep(self, rest: bytes | bytearray) -> None:
        """Buffer an incomplete frame, and how many bytes complete it, or at least its prefix."""
        self._parts = [rest]
        self._have = len(rest)
        whole = len(rest) >= _PREFIX.size
        self._need = _PREFIX.unpack_from(rest)[0] if whole else _PREFIX.size
