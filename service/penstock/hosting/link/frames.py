"""The frame codec of the link between server and model process.

A frame is `total length, header length, kind` (two 32-bit little-endian numbers and a byte), a
header of plain values, then the tensors' bytes in the order that the header lists them. A model
process trusts the server, whose headers are marshalled: nothing is faster, and any Python reads it.
The server does not trust the process, in which foreign code runs: what comes from there is msgpack,
decoded into the types of its kind (`parent.answer_types`), in frames of bounded size.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from penstock.core.buffer import Buffer
from penstock.hosting.link.messages import Kind
from penstock.hosting.link.plain_values import dumps

_PREFIX = struct.Struct("<IIB")
_MARSHAL_VERSION = 4
"""Readable by every Python this runs on, so that both ends may be of different versions."""

_JOIN_BELOW = 32 * 1024
"""Smaller parts are joined before they are written; larger ones are passed as they are."""

Message = tuple[int, Any, memoryview]
"""Kind, header and payload; the payload's memory stays valid while it has a view."""


LARGEST = 1 << 31
"""Bytes of a frame of a model process; its large tensors lie in shared memory."""

LARGEST_HEAD = 16 << 20
"""Bytes of the header of such a frame, unless it has files."""

_LARGEST_WITH_FILES = 1 << 30
"""Bytes of the header by which a model loads another model, with its files."""

Decode = Callable[[Any], Any]
"""The header in these bytes; raises anything for others."""


class BrokenFrameError(Exception):
    """The peer does not keep to the protocol; nothing that it has sent later can be read."""


def encode(kind: int, header: Any, payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """Encode a frame of the server, as parts to be written in order."""
    head = marshal.dumps(header, _MARSHAL_VERSION)
    size = _PREFIX.size + len(head) + sum(map(len, payload))
    return [_PREFIX.pack(size, len(head), kind) + head, *payload]


def encode_answer(kind: int, header: Any, payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """Encode a frame of a model process; raises `ValueError` for what the server would refuse."""
    head = dumps(header)
    size = _PREFIX.size + len(head) + sum(map(len, payload))
    if not _fits(kind, len(head), size):
        raise ValueError(
            f"a message of {size} bytes, {len(head)} of them for names, parameters and texts,"
            f" exceeds the limit of {LARGEST} bytes, {LARGEST_HEAD} of them for these"
        )
    return [_PREFIX.pack(size, len(head), kind) + head, *payload]


def _fits(kind: int, head: int, size: int) -> bool:
    """Whether a frame of a model process may be so large."""
    if head > LARGEST_HEAD and (kind != Kind.CONTROL or head > _LARGEST_WITH_FILES):
        return False
    return size <= LARGEST


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
    """Parses messages from a stream of bytes, wherever it is cut.

    Without `decoders`, by kinds, they are the server's. Raises `BrokenFrameError` for what is no
    frame, and what a decoder raises.
    """

    def __init__(self, decoders: Mapping[int, Decode] | None = None) -> None:
        self._decoders = decoders
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
            if size < _PREFIX.size + head:
                raise BrokenFrameError(f"a header of {head} bytes in a frame of {size}")
            header = self._decode(kind, view[begin : begin + head])
            yield kind, header, view[begin + head : at + size]
            at += size
        if at < end:
            self._keep(data[at:])

    def _keep(self, rest: bytes | bytearray) -> None:
        """Buffer an incomplete frame, and how many bytes complete it, or at least its prefix."""
        self._parts = [rest]
        self._have = len(rest)
        whole = len(rest) >= _PREFIX.size
        self._need = _PREFIX.size
        if whole:
            self._need, head, kind = _PREFIX.unpack_from(rest)
            if self._decoders is not None and not _fits(kind, head, self._need):
                raise BrokenFrameError(f"a frame of {self._need} bytes with {head} of a header")

    def _decode(self, kind: int, head: memoryview) -> Any:
        if self._decoders is None:
            return marshal.loads(head)
        decode = self._decoders.get(kind)
        if decode is None:
            raise BrokenFrameError(f"a message of kind {kind}, which is none of a model process")
        return decode(head)
