"""gRPC over HTTP/2: header fields, a parser of length-prefixed messages that arrive in pieces, and
gzip and deflate of messages, in steps, with a limit on the decompressed size.
"""

from __future__ import annotations

import binascii
import re
import struct
import zlib
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote_from_bytes

import numpy as np

from penstock.http2.hpack import Field, encode
from penstock.http2.request_headers import HttpRequest, read_request
from penstock.http2.stream import Buffer
from penstock.protocol.credentials import text_metadata

IDENTITY, GZIP, DEFLATE = b"identity", b"gzip", b"deflate"
ENCODINGS = (IDENTITY, DEFLATE, GZIP)
ACCEPTED = b",".join(ENCODINGS)

LARGE = 256 << 10
"""Bytes from which a message is compressed or decompressed on a thread."""

_WINDOW_BITS = {GZIP: 16 + zlib.MAX_WBITS, DEFLATE: zlib.MAX_WBITS}

_STEP = 1 << 20
"""Bytes read and written by one step: some 3 ms of decompression, 30 ms of compression."""
_PIECE = 64 << 10


class InflateError(Exception):
    """Data that cannot be decompressed, or to more than the limit (`too_large`)."""

    def __init__(self, text: str, *, too_large: bool = False) -> None:
        super().__init__(text)
        self.too_large = too_large


class Work(Protocol):
    """A long computation in steps, each of which may run on another thread."""

    def step(self) -> bool:
        """Run one step; returns whether it was the last."""

    def result(self) -> Buffer:
        """The result, after the last step; to be taken once."""


class Inflation:
    """Decompression of one message, to `limit` bytes at most. A step raises `InflateError`.

    Input is passed in pieces, since zlib copies the unconsumed rest of each. Output is one growing
    block, since the allocator keeps many small blocks for the thread but frees a large one.
    """

    def __init__(self, encoding: bytes, data: Buffer, limit: int) -> None:
        self._machine = zlib.decompressobj(_WINDOW_BITS[encoding])
        self._data = memoryview(data)
        self._limit = limit
        self._at = 0
        self._unpacked = bytearray()

    def step(self) -> bool:
        left = _STEP
        while not self._machine.eof and left > 0:
            left -= self._unpack_piece()
        if self._machine.eof and (self._machine.unused_data or self._at < len(self._data)):
            raise InflateError("message cannot be decompressed")
        return self._machine.eof

    def result(self) -> Buffer:
        unpacked, self._unpacked = self._unpacked, bytearray()
        return unpacked

    def close(self) -> None:
        """Release the output: a traceback may keep this object alive for a while.

        A step that is running on a thread finishes.
        """
        self._unpacked = bytearray()

    def _unpack_piece(self) -> int:
        """Decompress one piece; returns the bytes read plus the bytes written."""
        taken = 0
        piece: Buffer = self._machine.unconsumed_tail
        if not piece:
            piece = self._data[self._at : self._at + _PIECE]
            taken = len(piece)
            self._at += taken
        try:
            part = self._machine.decompress(piece, _PIECE)
        except zlib.error as error:
            raise InflateError("message cannot be decompressed") from error
        if not piece and not part and not self._machine.eof:  # cut short
            raise InflateError("message cannot be decompressed")
        self._unpacked += part
        if len(self._unpacked) > self._limit:
            text = f"message unpacks to more than {self._limit} bytes"
            raise InflateError(text, too_large=True)
        return taken + len(part)


class Deflation:
    """Compression of one message, given in parts."""

    def __init__(self, encoding: bytes, parts: Sequence[Buffer], level: int) -> None:
        self._machine = zlib.compressobj(level, zlib.DEFLATED, _WINDOW_BITS[encoding])
        self._left = deque(memoryview(part) for part in parts)
        self._packed = bytearray()

    def step(self) -> bool:
        room = _STEP
        while self._left and room:
            part = self._left.popleft()
            self._packed += self._machine.compress(part[:room])
            if len(part) > room:
                self._left.appendleft(part[room:])
            room -= min(room, len(part))
        if not self._left:
            self._packed += self._machine.flush()
        return not self._left

    def result(self) -> bytes:
        return bytes(self._packed)


Metadata = tuple[tuple[str, str | bytes], ...]

_RESERVED = frozenset((b"te", b"content-type", b"content-length", b"host"))
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_KEY = re.compile(r"[0-9a-z_.\-]+")
_TEXT = re.compile(r"[\x20-\x7e]*")
# Characters of a status message that need no percent-encoding.
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


def read_metadata(fields: Iterable[Field]) -> Metadata:
    """The metadata of a call; reserved fields of gRPC are left out."""
    pairs: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if name in _RESERVED or name.startswith(b"grpc-"):
            continue
        key = name.decode("ascii")
        if key.endswith("-bin"):
            # Values of equal keys may be joined by a comma.
            pairs.extend((key, _from_base64(part)) for part in value.split(b","))
        else:
            pairs.append((key, value.decode("latin-1")))
    return tuple(pairs)


def write_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> list[Field]:
    """Encode metadata as header fields; raises `ValueError` for keys or values not allowed."""
    fields: list[Field] = []
    for key, value in metadata:
        if not _KEY.fullmatch(key) or key.startswith("grpc-"):
            raise ValueError(f"metadata key {key!r} is not allowed")
        if key.endswith("-bin"):
            data = value.encode() if isinstance(value, str) else value
            fields.append((key.encode(), write_binary(data)))
        elif isinstance(value, str) and _TEXT.fullmatch(value):
            fields.append((key.encode(), value.strip().encode()))
        else:
            raise ValueError(f"metadata value of {key!r} is not printable ASCII text")
    return fields


def read_timeout(value: bytes) -> float:
    """Parse a `grpc-timeout` as seconds; raises `ValueError`."""
    found = _TIMEOUT.fullmatch(value)
    if found is None:
        raise ValueError("bad grpc-timeout")
    return int(found[1]) * _UNITS[found[2]]


def write_message(text: str) -> bytes:
    """Percent-encode a status message."""
    return quote_from_bytes(text.encode(errors="replace"), safe=_PLAIN).encode()


def write_binary(data: bytes) -> bytes:
    """Encode a binary metadata value in base64."""
    return b64encode(data).rstrip(b"=")


def _from_base64(value: bytes) -> bytes:
    try:
        return b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        raise ValueError("binary metadata is not in base64") from None


_TYPE = b"application/grpc"


@dataclass(frozen=True)
class CallHead:
    """The parsed headers of a call; shared by all calls with equal header blocks.

    `refusal` is the reason if the call cannot be served; `http_status` is set if it is not gRPC.
    `metadata_fields` are all metadata, in order; `metadata` are those with text values, where the
    last of equal keys wins, and credentials are joined (`text_metadata`). `timeout` is in seconds;
    `authority` is the server as the client names it, perhaps empty.
    """

    path: str
    metadata_fields: Metadata = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    encoding: bytes = IDENTITY
    accepted: frozenset[bytes] = frozenset()
    content_length: int | None = None
    http_status: int = 0
    head_only: bool = False
    refusal: str = ""
    authority: str = ""


def read_call(fields: tuple[Field, ...] | None) -> CallHead:
    """Parse the headers of a call; raises `MalformedError` if they are not valid HTTP/2."""
    if fields is None:
        return CallHead("", refusal="metadata is larger than allowed")
    request = read_request(fields)
    path = request.path.decode("latin-1")
    named = dict(reversed(request.fields))
    kind = named.get(b"content-type", b"")
    if not kind.startswith(_TYPE) or kind[len(_TYPE) : len(_TYPE) + 1] not in (b"", b"+", b";"):
        return _no_grpc(request, path, 415)
    if request.method != b"POST":
        return _no_grpc(request, path, 405)
    try:
        timeout = named.get(b"grpc-timeout")
        metadata = read_metadata(request.fields)
        return CallHead(
            path,
            metadata,
            text_metadata(metadata),
            None if timeout is None else read_timeout(timeout),
            named.get(b"grpc-encoding", IDENTITY),
            _accepted(named.get(b"grpc-accept-encoding", b"")),
            request.content_length,
            authority=request.authority.decode("latin-1"),
        )
    except ValueError as error:
        return CallHead(path, content_length=request.content_length, refusal=str(error))


def _no_grpc(request: HttpRequest, path: str, status: int) -> CallHead:
    return CallHead(
        path,
        content_length=request.content_length,
        http_status=status,
        head_only=request.method == b"HEAD",
    )


def _accepted(value: bytes) -> frozenset[bytes]:
    """The response encodings that the client accepts."""
    return frozenset(name.strip() for name in value.split(b","))


_STATUS_200 = (b":status", b"200")
_RESPONSE_TYPE = (b"content-type", b"application/grpc")
ACCEPT = (b"grpc-accept-encoding", ACCEPTED)
"""The encodings that the server accepts, sent to a client that has used another."""

BEGIN = encode((_STATUS_200, _RESPONSE_TYPE))
"""The header block of a response without metadata."""
OK = encode(((b"grpc-status", b"0"),))
"""The trailers of a successful response without metadata."""

_TEXTS = {415: b"this is a gRPC server\n", 405: b"gRPC calls are POST requests\n"}


def begin(metadata: Iterable[Field] = (), encoding: bytes = b"") -> bytes:
    """Encode the header block of a response."""
    extra = [(b"grpc-encoding", encoding)] if encoding else []
    return encode((_STATUS_200, _RESPONSE_TYPE, *extra, *metadata))


def end(
    code: int,
    message: str = "",
    details: bytes = b"",
    metadata: Iterable[Field] = (),
    *,
    only: bool = False,
) -> bytes:
    """Encode the trailers of a response; `only` if no headers were sent before."""
    fields: list[Field] = [_STATUS_200, _RESPONSE_TYPE] if only else []
    fields.append((b"grpc-status", b"%d" % code))
    if message:
        fields.append((b"grpc-message", write_message(message)))
    if details:
        fields.append((b"grpc-status-details-bin", write_binary(details)))
    return encode((*fields, *metadata))


def no_grpc(status: int) -> tuple[bytes, bytes]:
    """Header block and body of the response to a request that is not gRPC."""
    text = _TEXTS[status]
    fields = [(b":status", b"%d" % status), (b"content-type", b"text/plain")]
    return encode([*fields, (b"content-length", b"%d" % len(text))]), text


PREFIX = struct.Struct(">BL")
PREFIX_SIZE = 5

_FIRST_PIECE = 4 << 20
"""Bytes to allocate at first for a large message; the system maps them as they are written."""


CHOSEN_FROM = 32 << 10
"""Bytes of a message from which its buffer may be allocated by the caller's `Reserve`."""

MOST_AT_ONCE = 256
"""Messages that are cut at once; 50,000 empty ones of a read would take 50 ms."""

Reserve = Callable[[int, memoryview], memoryview | None]
"""Allocates the buffer of a message, given its size and first bytes; `None` for the default."""


class Quota(Protocol):
    """The count of bytes that messages take together."""

    def open(self, memory: memoryview, size: int) -> Any:
        """Count `size` bytes of a message in this memory, until its last view is gone."""

    def add(self, charge: Any, size: int) -> None:
        """Count more bytes of the message that `open` has returned this charge for."""


class MessageSizeError(Exception):
    """A message is larger than the limit."""


def _any_memory(size: int) -> memoryview:
    """An uninitialized buffer, since all of it will be written."""
    return np.empty(size, np.uint8).data


class MessageReader:
    """Parses a byte stream into messages, each of which is copied into a buffer of its own.

    The memory of the buffer is taken as the bytes arrive, whatever size the peer announces, or is
    allocated by `reserve`. `quota` counts the bytes of all but small messages. Of many that come
    at once, some are left to be asked for: see `more`.
    """

    __slots__ = (
        "_charge",
        "_closed",
        "_counted",
        "_filled",
        "_flag",
        "_limit",
        "_memory",
        "_prefix",
        "_quota",
        "_reserve",
        "_rest",
        "_size",
    )

    def __init__(
        self, limit: int, reserve: Reserve | None = None, quota: Quota | None = None
    ) -> None:
        self._limit = limit
        self._reserve = reserve
        self._quota = quota
        self._charge: Any = None
        self._prefix = bytearray()
        self._rest = bytearray()
        self._memory: memoryview | None = None
        self._closed = False
        self._filled = self._size = self._flag = self._counted = 0

    @property
    def empty(self) -> bool:
        """Whether no message is incomplete."""
        return self._memory is None and not self._prefix

    def feed(self, data: memoryview) -> list[tuple[int, Buffer]]:
        """The next messages that these bytes complete, each with its compression flag."""
        done: list[tuple[int, Buffer]] = []
        if self._closed:
            return done
        if self._rest:
            self._rest += data
            return done
        at = self._cut(data, done)
        if at < len(data):
            self._rest += data[at:]
        return done

    def more(self) -> list[tuple[int, Buffer]]:
        """The messages that follow those returned before, of bytes that have come already."""
        done: list[tuple[int, Buffer]] = []
        if self._rest:
            with memoryview(self._rest) as rest:
                at = self._cut(rest, done)
            del self._rest[:at]
        return done

    def _cut(self, data: memoryview, done: list[tuple[int, Buffer]]) -> int:
        """Add to `done` as many messages as may be; returns where the rest begins."""
        at, end = 0, len(data)
        while at < end and len(done) < MOST_AT_ONCE:
            if self._memory is not None:
                at = self._fill(data, at, end, done)
            elif not self._prefix and end - at >= PREFIX_SIZE:
                flag, size = PREFIX.unpack_from(data, at)
                at += PREFIX_SIZE
                if size <= end - at:
                    self._check(size)
                    done.append((flag, self._whole(flag, data[at : at + size])))
                    at += size
                else:
                    self._begin(flag, size, data[at:])
            else:
                at = self._read_prefix(data, at, end, done)
        return at

    def close(self) -> None:
        """Discard buffered data and ignore the rest."""
        self._closed = True
        self._rest = bytearray()
        self._memory = self._charge = None

    def feed_pieces(self, pieces: Sequence[memoryview], size: int) -> list[tuple[int, Buffer]]:
        """As `feed`, for bytes in pieces; `size` is their total."""
        if self._memory is None or self._filled + size > self._size:
            done: list[tuple[int, Buffer]] = []
            for piece in pieces:
                if len(done) < MOST_AT_ONCE:
                    done += self.feed(piece)
                elif not self._closed:
                    self._rest += piece
            return done
        memory, at = self._room(self._filled + size), self._filled
        for piece in pieces:
            end = at + len(piece)
            memory[at:end] = piece
            at = end
        self._filled = at
        self._count()
        return [self._finish()] if at == self._size else []

    def memory(self) -> memoryview | None:
        """The buffer for the next bytes of the incomplete message."""
        if self._memory is None:
            return None
        self._room(min(self._filled + 1, self._size))
        return self._memory[self._filled :]

    def filled(self, size: int) -> tuple[int, Buffer] | None:
        """`size` bytes were read into `memory()`; returns the message if it is complete."""
        self._filled += size
        self._count()
        return self._finish() if self._filled == self._size else None

    def _read_prefix(
        self, data: memoryview, at: int, end: int, done: list[tuple[int, Buffer]]
    ) -> int:
        stop = min(end, at + PREFIX_SIZE - len(self._prefix))
        self._prefix += data[at:stop]
        if len(self._prefix) == PREFIX_SIZE:
            flag, size = PREFIX.unpack(self._prefix)
            self._prefix.clear()
            self._begin(flag, size, data[stop:])
            if not size:
                done.append(self._finish())
        return stop

    def _begin(self, flag: int, size: int, beginning: memoryview) -> None:
        self._check(size)
        self._flag, self._size, self._filled = flag, size, 0
        memory = None if flag else self._memory_for(size, beginning)
        memory = self._memory = _any_memory(min(size, _FIRST_PIECE)) if memory is None else memory
        self._charge = None if self._quota is None else self._quota.open(memory, 0)
        self._counted = 0

    def _memory_for(self, size: int, beginning: memoryview) -> memoryview | None:
        """The buffer that `reserve` allocates for the message, if any."""
        if self._reserve is None or size < CHOSEN_FROM:
            return None
        return self._reserve(size, beginning)

    def _whole(self, flag: int, data: memoryview) -> Buffer:
        """Copy a complete message into a buffer of its own."""
        size = len(data)
        memory = None if flag else self._memory_for(size, data)
        if memory is None:
            if size < CHOSEN_FROM or self._quota is None:
                return bytes(data)
            memory = _any_memory(size)
        memory[:] = data
        if self._quota is not None:
            self._quota.open(memory, size)
        return memory

    def _fill(self, data: memoryview, at: int, end: int, done: list[tuple[int, Buffer]]) -> int:
        stop = min(end, at + self._size - self._filled)
        filled = self._filled + stop - at
        memory = self._room(filled)
        memory[self._filled : filled] = data[at:stop]
        self._filled = filled
        self._count()
        if filled == self._size:
            done.append(self._finish())
        return stop

    def _room(self, needed: int) -> memoryview:
        """The buffer of the message, grown to hold `needed` bytes."""
        memory = self._memory
        assert memory is not None
        if needed > len(memory):
            grown = self._memory = self._larger(needed, len(memory))
            grown[: self._filled] = memory[: self._filled]
            memory = grown
            if self._quota is not None:
                self._charge = self._quota.open(memory, self._filled)
        return memory

    def _larger(self, needed: int, size: int) -> memoryview:
        """A buffer for `needed` bytes and more, instead of `size`.

        The second is that of the whole message: copies of what has come would hold up others. Its
        pages are the system's to give as they are written.
        """
        with suppress(MemoryError):
            return _any_memory(self._size)
        return _any_memory(min(max(needed, 2 * size), self._size))

    def _count(self) -> None:
        """Count the bytes that have come into the buffer."""
        if self._charge is not None and self._quota is not None:
            self._quota.add(self._charge, self._filled - self._counted)
            self._counted = self._filled

    def _finish(self) -> tuple[int, Buffer]:
        memory, self._memory, self._charge = self._memory, None, None
        assert memory is not None
        return self._flag, memory

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise MessageSizeError(f"Received message larger than max ({size} vs. {self._limit})")
