"""`GrpcConnection`: gRPC calls on the streams of one HTTP/2 connection, seen from the client."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast
from urllib.parse import unquote

from penstock.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    HEADER,
    PADDED,
    PREFACE,
    PRIORITY,
    ErrorCode,
    FrameType,
    ProtocolError,
    frame,
    rst_stream,
    settings,
    window_update,
)
from penstock.http2.hpack import Decoder, Field, HeaderCache

_DATA, _HEADERS, _CONTINUATION = FrameType.DATA, FrameType.HEADERS, FrameType.CONTINUATION
_PREFIX = struct.Struct(">BL")
"""In front of each message: whether it is compressed, and its length."""
_TABLE_SIZE, _PUSH, _MAX_STREAMS, _INITIAL_WINDOW, _MAX_FRAME = 1, 2, 3, 4, 5
_LARGEST = (1 << 31) - 1
_LONGEST_BLOCK = 1 << 16

STREAM_WINDOW = 256 << 10
"""Bytes that a server may send on a stream ahead of its reader; a larger message gets more."""
OUR_MAX_FRAME = 256 << 10
_RENEWED = 1 << 29  # bytes after which the connection's window is opened again
_MOST_CREDIT = 1 << 30

_WORTH = 4096
"""Bytes of a frame that are taken before the rest of it has come."""

Buffer = bytes | bytearray | memoryview
Message = bytes | tuple[Buffer, ...]
"""A message to be sent, in parts where it is large, so that none is copied."""
Received = bytes | memoryview
"""A message that has come: a view where it is large."""

UNAVAILABLE, INTERNAL, UNIMPLEMENTED, EXHAUSTED, CANCELLED, UNKNOWN = 14, 13, 12, 8, 1, 2


class CallStatus(NamedTuple):
    """The end of a call: gRPC's code and message, and the trailing metadata.

    `untouched` says that the server has not looked at the call, so that another may be asked.
    `ours` that it is no server's answer: the connection failed, or what came on it was wrong.
    """

    code: int
    message: str = ""
    trailers: Mapping[bytes, bytes] = {}
    untouched: bool = False
    ours: bool = False


class GrpcCall:
    """One call under way: a subclass takes its messages and its end.

    Both are called at most until `GrpcConnection.cancel`; `ended` once, and nothing after it.
    """

    number = 0
    connection: GrpcConnection | None = None
    _window = 0
    _unsent: deque[memoryview] | None = None
    _partial: bytearray | None = None
    _prepaid = 0
    _unacknowledged = 0
    paused = False
    """Whether its reader is full: then the server gets no more credit."""

    def received(self, message: Received) -> None:
        """A message has come."""
        raise NotImplementedError

    def ended(self, status: CallStatus) -> None:
        """The call has ended."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Block:
    """A header block: the end of a call, or its beginning with what is wrong about it."""

    status: CallStatus | None
    fault: str = ""


class GrpcConnection(asyncio.Protocol):
    """A connection with one call on each stream; writes once in each turn of the event loop.

    `on_lost` is called once it is gone, before the ends of its calls: with the reason, which is
    empty where no call was under way. `on_settings` is called when the server has greeted.
    `activity` counts reads with something in them.
    """

    def __init__(
        self,
        max_message: int,
        on_settings: Callable[[], None],
        on_lost: Callable[[GrpcConnection, str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._max_message = max_message
        self._on_settings = on_settings
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, GrpcCall] = {}
        self._queued: deque[tuple[GrpcCall, bytes, Message]] = deque()
        self._bodies: dict[int, GrpcCall] = {}
        self._next = 1
        self._most = 1 << 30
        self._greeted = self._gone = False
        self._parts: list[bytes | memoryview] = []
        self._flushing = False
        self._writable = True
        self._window = 65535
        self._initial = 65535
        self._max_frame = 16384
        self._rest = b""
        self._left = (0, 0, 0)  # of a frame with data: stream, flags, and bytes still to come
        self._block = b""
        self._block_flags = 0
        self._received = 0
        # Without a dynamic table, equal blocks mean the same.
        self._blocks = HeaderCache(Decoder(0, _LONGEST_BLOCK), _read_block)
        self.activity = 0
        self.leaving = False

    # -- for its owner ------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether calls may be started."""
        return not self.leaving and self._transport is not None

    @property
    def idle(self) -> bool:
        """Whether no call is under way."""
        return not self._calls and not self._queued

    def start(self, call: GrpcCall, head: bytes, message: Message) -> None:
        """Send a call with its only message; waits where the server takes no more streams."""
        if len(self._calls) >= self._most:
            self._queued.append((call, head, message))
            return
        number = call.number = self._next
        self._next = number + 2
        self._calls[number] = call
        call._window = self._initial
        begin = frame(_HEADERS, END_HEADERS, number, head)
        room = min(self._max_frame, self._initial, self._window)
        if isinstance(message, bytes) and (size := len(message) + 5) <= room:
            self._window -= size
            data = HEADER.pack(size >> 16, size & 0xFFFF, _DATA, END_STREAM, number)
            self._add(b"".join((begin, data, _PREFIX.pack(0, size - 5), message)))
        else:
            self._add(begin)
            parts = (message,) if isinstance(message, bytes) else message
            self._send_parts(call, [memoryview(part) for part in parts])
        if self._next > _LARGEST - 2:
            self.leaving = True

    def _send_parts(self, call: GrpcCall, parts: Sequence[memoryview]) -> None:
        size = sum([part.nbytes for part in parts])
        bodies = [part.cast("B") for part in parts if part.nbytes]
        call._unsent = deque([memoryview(_PREFIX.pack(0, size)), *bodies])
        self._bodies[call.number] = call
        self._advance(call.number)

    def cancel(self, call: GrpcCall) -> None:
        """Cancel a call; its end is not reported."""
        if self._calls.pop(call.number, None) is call:
            self._bodies.pop(call.number, None)
            self._add(rst_stream(call.number, ErrorCode.CANCEL))
            self._start_queued()
        else:
            self._queued = deque(one for one in self._queued if one[0] is not call)

    def resume(self, call: GrpcCall) -> None:
        """Give the server credit again for a call whose reader had been full."""
        call.paused = False
        if call._unacknowledged >= STREAM_WINDOW // 2 and call.number in self._calls:
            self._acknowledge(call)

    def close(self, reason: str = "the connection was closed") -> None:
        """Close the connection; calls under way fail."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._lost(reason)

    # -- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast("asyncio.Transport", transport)  # which that of uvloop does not derive from
        self._transport = made
        opening = settings(
            (
                (_TABLE_SIZE, 0),
                (_PUSH, 0),
                (_INITIAL_WINDOW, STREAM_WINDOW),
                (_MAX_FRAME, OUR_MAX_FRAME),
            )
        )
        made.write(PREFACE + opening + window_update(0, _LARGEST - 65535))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost("the server closed the connection" if exc is None else f"connection lost: {exc}")

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        for number in list(self._bodies):
            self._advance(number)

    def data_received(self, data: bytes) -> None:
        self.activity += 1
        if self._rest:
            data = self._rest + data
        try:
            self._take(self._go_on(data) if self._left[2] else data)
        except (ProtocolError, struct.error, IndexError, UnicodeDecodeError) as error:
            self.close(_foreign(data) or f"not an answer of gRPC: {error}")

    # -- what comes ---------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        at, end = 0, len(data)
        while end - at >= 9:
            high, low, kind, flags, number = HEADER.unpack_from(data, at)
            start, size = at + 9, high << 16 | low
            if size > OUR_MAX_FRAME:
                raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            at = start + size
            if at > end:
                if kind == _DATA and not flags & PADDED and end - start > _WORTH:
                    self._left = number, flags, at - end
                    self._piece(0, number, data[start:end])
                    at = end
                else:
                    at = start - 9
                break
            if kind == _DATA:
                self._data(flags, number, data, start, at)
            elif kind == _HEADERS:
                self._header_frame(flags, number, data[start:at])
            else:
                self._control(kind, flags, number, data[start:at])
            if self._transport is None:
                return
        self._rest = data[at:] if at < end else b""

    def _go_on(self, data: bytes) -> bytes:
        """Take what has come of a frame of which some was taken already; the rest behind it."""
        number, flags, left = self._left
        piece, rest = data[:left], data[left:]
        left -= len(piece)
        self._left = (number, flags, left) if left else (0, 0, 0)
        self._piece(0 if left else flags, number, piece)
        return rest

    def _data(self, flags: int, number: int, data: bytes, start: int, end: int) -> None:
        """A whole frame, which is one message as a rule."""
        size = end - start
        call = self._calls.get(number)
        if call is not None and call._partial is None and size > 5 and not flags & PADDED:
            compressed, length = _PREFIX.unpack_from(data, start)
            if length == size - 5 and not compressed and length <= self._max_message:
                self._count(size)
                call.received(data[start + 5 : end])
                self._credit(call, size)
                if flags & END_STREAM:
                    self._end(number, _NO_STATUS)
                return
        payload = data[start:end]
        if flags & PADDED:
            payload = payload[1 : size - payload[0]]
            self._count(size - len(payload))
            if call is not None:
                self._credit(call, size - len(payload))
        self._piece(flags, number, payload)

    def _piece(self, flags: int, number: int, payload: bytes) -> None:
        """A frame, or some of it."""
        self._count(len(payload))
        call = self._calls.get(number)
        if call is None:
            return
        self._part(call, payload)
        self._credit(call, len(payload))
        if flags & END_STREAM:
            self._end(number, _NO_STATUS)

    def _count(self, size: int) -> None:
        """Count bytes for the connection's window."""
        self._received += size
        if self._received > _RENEWED:
            self._add(window_update(0, self._received))
            self._received = 0

    def _part(self, call: GrpcCall, payload: bytes) -> None:
        """Messages that do not fill a frame each."""
        partial = call._partial
        if partial is None:
            partial = call._partial = bytearray()
        partial += payload
        while len(partial) >= 5:
            compressed, length = _PREFIX.unpack_from(partial)
            if compressed or length > self._max_message:
                self._refuse(call, bool(compressed), length)
                return
            if len(partial) < 5 + length:
                self._prepay(call, 5 + length - len(partial))
                return
            if len(partial) == 5 + length:
                call._partial = None
                call.received(memoryview(partial)[5:])
                return
            message = bytes(memoryview(partial)[5 : 5 + length])
            del partial[: 5 + length]
            call.received(message)
            if call.number not in self._calls:
                return
        if not partial:
            call._partial = None

    def _prepay(self, call: GrpcCall, missing: int) -> None:
        """Give a large message all the credit that it needs, at once."""
        if missing > STREAM_WINDOW // 2 and not call._prepaid:
            call._prepaid = min(missing, _MOST_CREDIT)
            self._add(window_update(call.number, call._prepaid))

    def _refuse(self, call: GrpcCall, compressed: bool, length: int) -> None:
        """End a call whose message is not read."""
        number = call.number
        self._add(rst_stream(number, ErrorCode.CANCEL))
        if compressed:
            status = CallStatus(INTERNAL, "the server compresses though not asked to", ours=True)
        else:
            text = f"a message of {length} bytes is longer than max_response_bytes"
            status = CallStatus(EXHAUSTED, f"{text}, {self._max_message}", ours=True)
        self._end(number, status)

    def _credit(self, call: GrpcCall, size: int) -> None:
        if call._prepaid:
            used = min(call._prepaid, size)
            call._prepaid -= used
            size -= used
        call._unacknowledged += size
        if (
            call._unacknowledged >= STREAM_WINDOW // 2
            and not call.paused
            and call.number in self._calls
        ):
            self._acknowledge(call)

    def _acknowledge(self, call: GrpcCall) -> None:
        self._add(window_update(call.number, call._unacknowledged))
        call._unacknowledged = 0

    def _header_frame(self, flags: int, number: int, payload: bytes) -> None:
        if flags & PADDED:
            payload = payload[1 : len(payload) - payload[0]]
        if flags & PRIORITY:
            payload = payload[5:]
        self._block_flags = flags & END_STREAM
        self._block = b""
        self._header_block(flags, number, payload)

    def _header_block(self, flags: int, number: int, payload: bytes) -> None:
        block = self._block + payload if self._block else payload
        if not flags & END_HEADERS:
            if len(block) > _LONGEST_BLOCK:
                raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, "an endless header block")
            self._block = block
            return
        self._block = b""
        read = self._blocks.decode(block)
        if read.status is not None:
            self._end(number, read.status)
        elif read.fault:
            self._end(number, CallStatus(UNAVAILABLE, read.fault, ours=True))
        elif self._block_flags:
            self._end(number, _NO_STATUS)

    def _control(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == _CONTINUATION:
            self._header_block(flags, number, payload)
        elif kind in (FrameType.SETTINGS, FrameType.PING):
            if flags & ACK:
                return
            if kind == FrameType.SETTINGS:
                self._settings(payload)
            self._add(frame(kind, ACK, 0, b"" if kind == FrameType.SETTINGS else payload))
        elif kind == FrameType.WINDOW_UPDATE:
            self._opened(number, int.from_bytes(payload, "big") & _LARGEST)
        elif kind == FrameType.RST_STREAM:
            self._reset(number, int.from_bytes(payload[:4], "big"))
        elif kind == FrameType.GOAWAY:
            self._leave(int.from_bytes(payload[:4], "big") & _LARGEST, payload[8:])

    def _settings(self, payload: bytes) -> None:
        for name, value in struct.iter_unpack(">HL", payload):
            if name == _MAX_STREAMS:
                self._most = value
            elif name == _INITIAL_WINDOW:
                change, self._initial = value - self._initial, value
                for call in self._bodies.values():
                    call._window += change
            elif name == _MAX_FRAME:
                self._max_frame = min(value, 1 << 20)
        for number in list(self._bodies):
            self._advance(number)
        if not self._greeted:
            self._greeted = True
            self._on_settings()
        self._start_queued()

    def _reset(self, number: int, code: int) -> None:
        if code == ErrorCode.REFUSED_STREAM:
            status = CallStatus(UNAVAILABLE, "the server refused the stream", {}, True, True)
        elif code == ErrorCode.CANCEL:
            status = CallStatus(CANCELLED, "the server cancelled the call", ours=True)
        else:
            name = ErrorCode(code).name if code <= ErrorCode.HTTP_1_1_REQUIRED else str(code)
            status = CallStatus(UNAVAILABLE, f"the server reset the stream: {name}", ours=True)
        self._end(number, status)

    def _leave(self, last: int, reason: bytes) -> None:
        """The server goes: it does not answer calls behind the `last`."""
        self.leaving = True
        text = reason.decode("utf-8", "replace")
        why = f"the server closes the connection: {text}".rstrip(": ")
        status = CallStatus(UNAVAILABLE, why, {}, True, True)
        for number in [number for number in self._calls if number > last]:
            self._end(number, status)
        self._fail_queued(status)
        if not self._calls and self._transport is not None:
            self._transport.close()

    def _end(self, number: int, status: CallStatus) -> None:
        call = self._calls.pop(number, None)
        if call is None:
            return
        if self._bodies.pop(number, None) is not None and status.code == 0:
            self._add(rst_stream(number, ErrorCode.NO_ERROR))
        call.ended(status)
        if self._queued:
            self._start_queued()
        if self.leaving and not self._calls and self._transport is not None:
            self._transport.close()

    def _lost(self, reason: str) -> None:
        if self._gone:
            return
        self._gone = self.leaving = True
        self._rest = b""
        status = CallStatus(UNAVAILABLE, reason, ours=True)
        calls, self._calls = self._calls, {}
        orderly = self._greeted and not calls and not self._queued
        self._bodies.clear()
        self._on_lost(self, "" if orderly else reason)
        for call in calls.values():
            call.ended(status)
        self._fail_queued(status._replace(untouched=True))

    def _fail_queued(self, status: CallStatus) -> None:
        queued, self._queued = self._queued, deque()
        for call, _, _ in queued:
            call.ended(status)

    def _start_queued(self) -> None:
        while self._queued and len(self._calls) < self._most and not self.leaving:
            self.start(*self._queued.popleft())

    # -- what goes ----------------------------------------------------------------------------

    def _opened(self, number: int, size: int) -> None:
        if number == 0:
            self._window += size
            for each in list(self._bodies):
                self._advance(each)
        elif (call := self._bodies.get(number)) is not None:
            call._window += size
            self._advance(number)

    def _advance(self, number: int) -> None:
        """Send as much of a body as the windows and the transport have room for."""
        call = self._bodies[number]
        rest = call._unsent
        assert rest is not None
        while self._writable and rest:
            part = rest[0]
            size = min(self._window, call._window, self._max_frame, len(part))
            if size <= 0:
                return
            if size == len(part):
                rest.popleft()
            else:
                part, rest[0] = part[:size], part[size:]
            call._window -= size
            self._window -= size
            flags = 0 if rest else END_STREAM
            self._add(HEADER.pack(size >> 16, size & 0xFFFF, _DATA, flags, number))
            self._parts.append(part)
            if size > _WORTH:
                self._flush()
        if not rest:
            del self._bodies[number]

    def _add(self, data: bytes) -> None:
        self._parts.append(data)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        parts, self._parts = self._parts, []
        if self._transport is not None and parts:
            self._transport.writelines(parts)


_NO_STATUS = CallStatus(INTERNAL, "the call ended without a status", ours=True)


def _read_block(fields: tuple[Field, ...] | None) -> _Block:
    if fields is None:
        return _Block(None, "the header block is too large")
    found = dict(fields)
    status = found.get(b"grpc-status")
    if status is not None:
        code = int(status) if status.isdigit() and len(status) < 4 else UNKNOWN
        text = unquote(found.get(b"grpc-message", b"").decode("latin-1"), errors="replace")
        return _Block(CallStatus(code, text, found))
    http = found.get(b":status", b"200")
    if http == b"200":
        return _Block(None)
    return _Block(None, f"HTTP status {http.decode('latin-1')} in place of an answer of gRPC")


def _foreign(data: bytes) -> str:
    """The complaint about another protocol, which its first bytes show; empty if none is seen."""
    return "it speaks HTTP/1, not gRPC: is this its HTTP port?" if data[:7] == b"HTTP/1." else ""
