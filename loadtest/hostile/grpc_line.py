"""`GrpcLine`: calls of gRPC over a plain socket, whose messages are whatever bytes one likes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from urllib.parse import unquote

from loadtest.hostile.line import CLOSED, Line
from penstock.http2.hpack import Decoder, encode
from penstock.perf.wire.outgoing import frame

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_INITIAL_WINDOW, _LARGEST_FRAME = 4, 5  # of SETTINGS
_LARGEST, _DEFAULT_WINDOW = (1 << 31) - 1, 65535
_FRAME = struct.Struct(">HBBBI")  # length in two parts, type, flags, stream
_CANCEL = (8).to_bytes(4, "big")
_CODES = (
    "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS"
    " PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED"
    " INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED"
).split()


@dataclass(frozen=True, slots=True)
class GrpcSending:
    """The messages that each call of a row sends, with their prefixes.

    With a `pause` it goes a byte at a time. With `patience` the request never ends. `unpacked` is
    the size of a compressed message.
    """

    body: bytes
    encoding: str = ""
    unpacked: int = 0
    calls: int = 1
    pause: float = 0.0
    patience: float | None = None


class GrpcLine(Line):
    """A connection with calls at once. `first` answers it where the server streams without end."""

    def __init__(self, port: int, path: str, sending: GrpcSending, *, first: bool = False) -> None:
        super().__init__(port, sending.calls, sending.patience)
        self._sending = sending
        self._path = path
        self._first = first
        self._decoder = Decoder(4096, 1 << 20)
        self._buffer = bytearray()
        self._window = _DEFAULT_WINDOW
        self._initial = _DEFAULT_WINDOW
        self._frame_size = 1 << 14
        self._due = 0.0
        numbers = range(1, 2 * sending.calls, 2)
        self._left = dict.fromkeys(numbers, memoryview(sending.body))
        self._windows = dict.fromkeys(numbers, self._initial)
        self._asked = set(numbers)
        self._texts: dict[int, bytes] = dict.fromkeys(numbers, b"")
        settings = struct.pack(">HI", _INITIAL_WINDOW, _LARGEST)
        opened = struct.pack(">I", _LARGEST - _DEFAULT_WINDOW)
        self._out += _PREFACE + frame(_SETTINGS, 0, 0, settings) + frame(_WINDOW, 0, 0, opened)
        ends = not sending.body and sending.patience is None
        flags = _END_HEADERS | (_END_STREAM if ends else 0)
        head = _head(path, sending.encoding)
        self._out += b"".join(frame(_HEADERS, flags, number, head) for number in numbers)
        if ends:
            self._left.clear()

    @property
    def _sent_all(self) -> bool:
        return not self._left

    def _next(self, now: float) -> bytes:
        if self._sending.pause:
            if now < self._due:
                return b""
            self._due = now + self._sending.pause
        most = 1 if self._sending.pause else self._frame_size
        return b"".join([self._piece(number, most) for number in list(self._left)])

    def _piece(self, number: int, most: int) -> bytes:
        """The next frame of a call's body, if there is room for it."""
        rest = self._left[number]
        size = min(most, len(rest), self._window, self._windows[number])
        if size <= 0 and len(rest):
            return b""
        self._window -= size
        self._windows[number] -= size
        last = size == len(rest)
        if last:
            del self._left[number]
        else:
            self._left[number] = rest[size:]
        flags = _END_STREAM if last and self._sending.patience is None else 0
        return frame(_DATA, flags, number, bytes(rest[:size]))

    def _take(self, received: bytes) -> None:
        buffer = self._buffer
        buffer += received
        at = 0
        while len(buffer) - at >= 9:
            high, low, kind, flags, number = _FRAME.unpack_from(buffer, at)
            after = at + 9 + (high << 8 | low)
            if after > len(buffer):
                break
            self._frame(kind, flags, number, bytes(buffer[at + 9 : after]))
            at = after
        del buffer[:at]

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == _DATA:
            self._data(flags, number, payload)
        elif kind == _HEADERS:
            self._headers(flags, number, payload)
        elif kind == _RESET:
            self._answered(number, f"RST_STREAM {int.from_bytes(payload, 'big')}")
        elif kind == _GOAWAY:
            self._end(f"{CLOSED}: GOAWAY {int.from_bytes(payload[4:8], 'big')}")
        elif kind == _WINDOW:
            self._open(number, int.from_bytes(payload, "big"))
        elif kind in (_SETTINGS, _PING) and not flags & _ACK:
            self._settings(payload if kind == _SETTINGS else b"")
            self._out += frame(kind, _ACK, 0, payload if kind == _PING else b"")

    def _settings(self, payload: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", payload):
            if name == _LARGEST_FRAME:
                self._frame_size = min(value, 1 << 16)
            elif name == _INITIAL_WINDOW:
                more, self._initial = value - self._initial, value
                self._windows = {number: w + more for number, w in self._windows.items()}

    def _open(self, number: int, more: int) -> None:
        if number:
            self._windows[number] += more
        else:
            self._window += more

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        self._texts[number] = (self._texts.get(number, b"") + payload)[:300]
        if self._first and number in self._asked:
            self._out += frame(_RESET, 0, number, _CANCEL)
            self._answered(number, "OK")
        elif flags & _END_STREAM:
            self._answered(number, "ended without a status")

    def _headers(self, flags: int, number: int, payload: bytes) -> None:
        fields = dict(self._decoder.decode(payload) or ())
        if not flags & _END_STREAM:
            return
        status = fields.get(b"grpc-status")
        if status is None:
            self._answered(number, f"HTTP {fields.get(b':status', b'').decode()}")
            return
        text = unquote(fields.get(b"grpc-message", b"").decode("latin-1"))
        text = text or self._error_of_stream(number)
        name = _CODES[int(status)]
        self._answered(number, f"{name}: {text}" if text else name)

    def _error_of_stream(self, number: int) -> str:
        """The error in the first response of a stream of inferences, if it holds one."""
        message = self._texts.get(number, b"")
        if self._path.endswith("/ModelStreamInfer") and message[5:6] == b"\x0a":
            return message[7:].decode(errors="replace")
        return ""

    def _answered(self, number: int, answer: str) -> None:
        if number not in self._asked:
            return
        self._asked.remove(number)
        if self._left.pop(number, None) is not None:
            self._out += frame(_RESET, 0, number, _CANCEL)
        self.answers.append(answer)


def _head(path: str, encoding: str) -> bytes:
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", b"127.0.0.1"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    ]
    return encode([*fields, *([(b"grpc-encoding", encoding.encode())] if encoding else [])])
