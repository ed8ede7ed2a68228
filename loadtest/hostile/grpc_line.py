"""`GrpcLine`: calls of gRPC over a plain socket, whose messages are whatever bytes one likes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from urllib.parse import unquote

from loadtest.hostile.line import CLOSED, Line
from penstock.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    HEADER,
    HEADER_SIZE,
    LARGEST_WINDOW,
    PREFACE,
    SMALLEST_MAX_FRAME,
    FrameType,
    frame,
    settings,
)
from penstock.http2.hpack import Decoder, encode
from penstock.rpc.status import StatusCode

_INITIAL_WINDOW, _LARGEST_FRAME = 4, 5  # of SETTINGS
_DEFAULT_WINDOW = 65535
_CANCEL = (8).to_bytes(4, "big")


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
        self._frame_size = SMALLEST_MAX_FRAME
        self._due = 0.0
        numbers = range(1, 2 * sending.calls, 2)
        self._left = dict.fromkeys(numbers, memoryview(sending.body))
        self._windows = dict.fromkeys(numbers, self._initial)
        self._asked = set(numbers)
        self._texts: dict[int, bytes] = dict.fromkeys(numbers, b"")
        opened = struct.pack(">I", LARGEST_WINDOW - _DEFAULT_WINDOW)
        self._out += PREFACE + settings([(_INITIAL_WINDOW, LARGEST_WINDOW)])
        self._out += frame(FrameType.WINDOW_UPDATE, 0, 0, opened)
        ends = not sending.body and sending.patience is None
        flags = END_HEADERS | (END_STREAM if ends else 0)
        head = _head(path, sending.encoding)
        self._out += b"".join(frame(FrameType.HEADERS, flags, number, head) for number in numbers)
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
        flags = END_STREAM if last and self._sending.patience is None else 0
        return frame(FrameType.DATA, flags, number, bytes(rest[:size]))

    def _take(self, received: bytes) -> None:
        buffer = self._buffer
        buffer += received
        at = 0
        while len(buffer) - at >= HEADER_SIZE:
            high, low, kind, flags, number = HEADER.unpack_from(buffer, at)
            begin = at + HEADER_SIZE
            after = begin + (high << 16 | low)
            if after > len(buffer):
                break
            self._frame(kind, flags, number, bytes(buffer[begin:after]))
            at = after
        del buffer[:at]

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == FrameType.DATA:
            self._data(flags, number, payload)
        elif kind == FrameType.HEADERS:
            self._headers(flags, number, payload)
        elif kind == FrameType.RST_STREAM:
            self._answered(number, f"RST_STREAM {int.from_bytes(payload, 'big')}")
        elif kind == FrameType.GOAWAY:
            self._end(f"{CLOSED}: GOAWAY {int.from_bytes(payload[4:8], 'big')}")
        elif kind == FrameType.WINDOW_UPDATE:
            self._open(number, int.from_bytes(payload, "big"))
        elif kind in (FrameType.SETTINGS, FrameType.PING) and not flags & ACK:
            self._settings(payload if kind == FrameType.SETTINGS else b"")
            self._out += frame(kind, ACK, 0, payload if kind == FrameType.PING else b"")

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
            self._out += frame(FrameType.RST_STREAM, 0, number, _CANCEL)
            self._answered(number, "OK")
        elif flags & END_STREAM:
            self._answered(number, "ended without a status")

    def _headers(self, flags: int, number: int, payload: bytes) -> None:
        fields = dict(self._decoder.decode(payload) or ())
        if not flags & END_STREAM:
            return
        status = fields.get(b"grpc-status")
        if status is None:
            self._answered(number, f"HTTP {fields.get(b':status', b'').decode()}")
            return
        text = unquote(fields.get(b"grpc-message", b"").decode("latin-1"))
        text = text or self._error_of_stream(number)
        name = StatusCode(int(status)).name
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
            self._out += frame(FrameType.RST_STREAM, 0, number, _CANCEL)
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
