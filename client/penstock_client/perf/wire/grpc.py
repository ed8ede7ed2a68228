"""gRPC calls on the streams of one HTTP/2 connection."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from penstock.http2.frames import ErrorCode, ProtocolError
from penstock.http2.hpack import Decoder, Field, HeaderCache, encode
from penstock_client.perf.wire.call import Call, Listener, Request
from penstock_client.perf.wire.endpoint import Endpoint
from penstock_client.perf.wire.outgoing import Outgoing, frame
from penstock_client.perf.wire.transport import Transport

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 1, 1, 4, 8, 0x20
_ENDING = _END_STREAM | _END_HEADERS
_FRAME = struct.Struct(">HBBBI")  # length in two parts, type, flags, stream
_PREFIX = struct.Struct(">BI")  # compressed, length
_TABLE_SIZE, _MAX_STREAMS, _INITIAL_WINDOW, _MAX_FRAME = 1, 3, 4, 5
_LARGEST = (1 << 31) - 1
_RENEWED = 1 << 29  # bytes after which the connection's window is opened again
_BUFFER = 1 << 20
_UNLIMITED = 1 << 30  # streams, where the server sets no limit
_ERROR = 0x0A  # first byte of a ModelStreamInferResponse with an error
_KEPT = 1 << 16  # bytes of a message that may be kept until it is whole
_REFUSED = 7
_REFUSED_SECONDS = 2.0  # after its start a call that the server refuses is sent again
_CANCEL = (8).to_bytes(4, "big")
_CODES = (
    "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS"
    " PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED"
    " INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED"
).split()


def request_head(endpoint: Endpoint, method: str, metadata: Mapping[str, str]) -> bytes:
    """The header block of calls of a method, which is the same for each of them."""
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"https" if endpoint.secure else b"http"),
        (b":path", method.encode()),
        (b":authority", endpoint.authority.encode()),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"penstock-perf"),
    ]
    return encode([*fields, *((k.lower().encode(), v.encode()) for k, v in metadata.items())])


def opening() -> bytes:
    """The first bytes of a connection: windows that are never closed, and no dynamic table."""
    settings = struct.pack(">HIHI", _TABLE_SIZE, 0, _INITIAL_WINDOW, _LARGEST)
    opened = struct.pack(">I", _LARGEST - 65535)
    return _PREFACE + frame(_SETTINGS, 0, 0, settings) + frame(_WINDOW, 0, 0, opened)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a header block says: the fault in it, and whether it has a status of gRPC's."""

    fault: str
    final: bool


class GrpcWire:
    """A connection with one call on each of its streams."""

    def __init__(self, endpoint: Endpoint, listener: Listener) -> None:
        self.transport = Transport(endpoint, "h2")
        self._listener = listener
        self._calls: dict[int, Call] = {}
        self._most = 0  # until the server has said how many
        self._next = 1
        self._outgoing = Outgoing(self.transport)
        self._buffer = bytearray(_BUFFER)
        self._view = memoryview(self._buffer)
        self._end = 0
        self._received = 0  # bytes that count for flow control, since the window was opened
        self._block = b""
        self._leaving = False
        # The header blocks of nearly all answers, once they have come: of their begin and end.
        self._begin = self._good = b""
        # Without a dynamic table, equal blocks mean the same, so that all but the first are known.
        self._headers = HeaderCache(Decoder(0, 1 << 16), _answer)
        self.transport.send(opening())

    @property
    def room(self) -> int:
        """How many more calls may be started now; none once the server wants to go."""
        return 0 if self._leaving else self._most - len(self._calls)

    @property
    def under_way(self) -> Sequence[Call]:
        """The calls that have not ended."""
        return list(self._calls.values())

    def start(self, call: Call, request: Request) -> None:
        """Send a request, as `framed` makes it, with the next `flush`."""
        call.sent = request
        number = call.number = self._next
        self._next = number + 2
        self._calls[number] = call
        self._outgoing.send(number, request)

    def flush(self) -> None:
        """Send what was started."""
        self._outgoing.flush()

    def cancel(self, call: Call) -> None:
        """Cancel a call; its end is not reported."""
        if self._calls.pop(call.number, None) is not None:
            self._outgoing.forget(call.number)
            self._outgoing.queue(frame(_RESET, 0, call.number, _CANCEL))
            self._outgoing.flush()

    def close(self) -> None:
        """Close the connection; nothing is reported."""
        self.transport.close()

    def read(self, wait: bool = False) -> None:
        """Take what has come, with the time of its coming."""
        transport, more = self.transport, True
        while more:
            view = self._view[self._end :] if self._end else self._view
            received = transport.receive_into(view, wait)
            if received < 0:
                break
            if not received:
                self._lost("the server closed the connection")
                return
            try:
                self._take(self._end + received, time.perf_counter())
            except (ProtocolError, IndexError, struct.error) as error:
                self._lost(_foreign(bytes(self._view[:7])) or f"not an answer of gRPC: {error}")
                return
            if self._received > _RENEWED:
                self._renew()
            wait, more = False, not transport.waits and transport.more
        self._outgoing.flush()

    def _take(self, end: int, now: float) -> None:
        buffer, at = self._buffer, 0
        while end - at >= 9:
            high, low, kind, flags, number = _FRAME.unpack_from(buffer, at)
            start = at + 9
            after = start + (high << 8 | low)
            if after > end:
                _check_size(after - start)
                break
            at = after
            if kind == _DATA:
                self._data(flags, number, start, after, now)
            elif kind == _HEADERS:
                self._header_frame(flags, number, start, after, now)
            else:
                self._control(kind, flags, number, bytes(buffer[start:after]), now)
        self._end = end - at
        if at < end:
            buffer[: self._end] = buffer[at:end]

    def _data(self, flags: int, number: int, start: int, after: int, now: float) -> None:
        """A frame that is one message, as nearly all are, is not even copied."""
        self._received += after - start
        call = self._calls.get(number)
        if call is None:
            return
        buffer = self._buffer
        if (
            call.in_frames
            and not flags
            and after - start > 5
            and _PREFIX.unpack_from(buffer, start)[1] == after - start - 5
            and (buffer[start + 5] != _ERROR or not call.streamed)
        ):
            self._listener.on_response(call, now)
        else:
            self._part(call, flags, bytes(buffer[start:after]), now)

    def _part(self, call: Call, flags: int, data: bytes, now: float) -> None:
        """Messages that do not fill a frame each, and errors."""
        if flags & _PADDED:
            data = _unpadded(data)
        if call.missing:
            taken = min(call.missing, len(data))
            call.missing -= taken
            data = data[taken:]
            if call.missing:
                return
            self._listener.on_response(call, now)
        if call.partial is None:
            call.partial = bytearray()
        call.partial += data
        self._messages(call, call.partial, now)

    def _messages(self, call: Call, partial: bytearray, now: float) -> None:
        while len(partial) >= 5:
            size = _PREFIX.unpack_from(partial)[1]
            if len(partial) < 5 + size:
                if size > _KEPT and len(partial) > 5 and not _is_read(call, partial):
                    call.missing = 5 + size - len(partial)
                    partial.clear()
                break
            if size and _is_error(call, partial):
                call.error = call.error or _error_text(bytes(partial[5 : 5 + size]))
            else:
                if call.whole is not None:
                    call.whole.append(bytes(partial[5 : 5 + size]))
                self._listener.on_response(call, now)
            del partial[: 5 + size]
        call.in_frames = not partial and not call.missing and call.whole is None

    def _control(self, kind: int, flags: int, number: int, payload: bytes, now: float) -> None:
        if kind == _CONTINUATION:
            self._header_block(flags, number, payload, now)
        elif kind in (_SETTINGS, _PING):
            if not flags & _ACK:
                if kind == _SETTINGS:
                    self._settings(payload)
                self._outgoing.queue(frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind == _WINDOW:
            self._outgoing.opened(number, int.from_bytes(payload, "big"))
        elif kind == _RESET:
            self._reset(number, now, int.from_bytes(payload[:4], "big"))
        elif kind == _GOAWAY:
            self._leave(int.from_bytes(payload[:4], "big"), payload[8:], now)

    def _header_frame(self, flags: int, number: int, start: int, after: int, now: float) -> None:
        """Blocks that have come before, and say that all is well, are not looked into."""
        buffer, size = self._buffer, after - start
        if (
            flags == _ENDING
            and 0 < size == len(self._good)
            and buffer.startswith(self._good, start)
        ):
            call = self._calls.pop(number, None)
            if call is not None:
                if self._outgoing.waiting:
                    self._outgoing.forget(number)
                self._listener.on_end(call, now, call.error)
            return
        if (
            flags == _END_HEADERS
            and size == len(self._begin)
            and buffer.startswith(self._begin, start)
        ):
            return
        payload = bytes(buffer[start:after])
        if flags & _PADDED:
            payload = _unpadded(payload)
        if flags & _PRIORITY:
            payload = payload[5:]
        self._header_block(flags, number, payload, now)

    def _header_block(self, flags: int, number: int, payload: bytes, now: float) -> None:
        block = self._block + payload
        if not flags & _END_HEADERS:
            self._block = block
            return
        self._block = b""
        answer = self._headers.decode(block)
        if answer.final or flags & _END_STREAM:
            if answer.final and not answer.fault:
                self._good = block
            fault = answer.fault if answer.final else "the call ended without a status"
            self._ended(number, now, fault)
        elif not answer.fault:
            self._begin = block
        elif (call := self._calls.get(number)) is not None:
            call.error = answer.fault

    def _ended(self, number: int, now: float, fault: str) -> None:
        call = self._calls.pop(number, None)
        if call is not None:
            self._outgoing.forget(number)
            self._listener.on_end(call, now, call.error or fault)

    def _reset(self, number: int, now: float, code: int) -> None:
        call = self._calls.get(number)
        if call is not None and code == _REFUSED and now - call.start < _REFUSED_SECONDS:
            # The server has not looked at it: it was still about to forget a stream that has ended.
            del self._calls[number]
            self._outgoing.forget(number)
            self.start(call, call.sent)
            return
        self._ended(number, now, f"the server reset the stream, code {code}")

    def _settings(self, payload: bytes) -> None:
        self._most = self._most or _UNLIMITED
        for name, value in struct.iter_unpack(">HI", payload):
            if name == _MAX_STREAMS:
                self._most = value
            elif name == _INITIAL_WINDOW:
                self._outgoing.set_initial_window(value)
            elif name == _MAX_FRAME:
                self._outgoing.set_max_frame(value)

    def _leave(self, last: int, reason: bytes, now: float) -> None:
        """The server wants to go: it does not answer calls behind the `last`."""
        self._leaving = True
        text = reason.decode("utf-8", "replace")
        for number in [number for number in self._calls if number > last]:
            self._ended(number, now, f"the server closes the connection: {text}".rstrip(": "))

    def _lost(self, reason: str) -> None:
        now = time.perf_counter()
        self._leaving = True
        for number in list(self._calls):
            self._ended(number, now, reason)
        self._listener.on_lost(self, reason)

    def _renew(self) -> None:
        opened = struct.pack(">I", self._received)
        self._outgoing.queue(frame(_WINDOW, 0, 0, opened))
        self._received = 0


def _unpadded(payload: bytes) -> bytes:
    """What is in a frame beside its padding, whose length is the first byte."""
    end = len(payload) - payload[0]
    if end < 1:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "a frame with more padding than bytes")
    return payload[1:end]


def _check_size(length: int) -> None:
    """Raise `ProtocolError` for a frame that the buffer has no room for."""
    if length > _BUFFER - 9:
        raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes")


def _foreign(start: bytes) -> str:
    """The complaint about another protocol that is known by its first bytes; empty if none is."""
    return "it speaks HTTP, not gRPC: is this its HTTP port?" if start == b"HTTP/1." else ""


def _is_read(call: Call, partial: bytearray) -> bool:
    return call.whole is not None or _is_error(call, partial)


def _is_error(call: Call, partial: bytearray) -> bool:
    return call.streamed and partial[5] == _ERROR


def _answer(fields: tuple[Field, ...] | None) -> _Answer:
    found = dict(fields or ())
    status = found.get(b"grpc-status")
    if status is not None:
        if status == b"0":
            return _Answer("", True)
        number = int(status) if status.isdigit() else 2
        code = _CODES[number] if number < len(_CODES) else str(number)
        text = unquote(found.get(b"grpc-message", b"").decode("latin-1"))
        return _Answer(f"{code}: {text}", True)
    http = found.get(b":status", b"200")
    return _Answer("" if http == b"200" else f"HTTP status {http.decode('latin-1')}", False)


def _error_text(message: bytes) -> str:
    """The text of a `ModelStreamInferResponse` that begins with its `error_message`."""
    size, at, shift = 0, 1, 0
    while True:
        byte = message[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return message[at : at + size].decode("utf-8", "replace") or "an error without a text"
