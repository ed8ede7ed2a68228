"""gRPC calls read with little work for each message: no objects, and nothing is decoded."""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Mapping

from loadtest.stream_tally import Call, Tally
from loadtest.wires.tcp import connect
from penstock.http2.hpack import Decoder, encode

_METHOD = b"/inference.GRPCInferenceService/ModelStreamInfer"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_FRAME = struct.Struct(">HBBBI")  # length in two parts, type, flags, stream
_PREFIX = struct.Struct(">BI")  # compressed, length
_LARGEST = (1 << 31) - 1
_INITIAL = 65535
_RENEWED = 1 << 29  # bytes after which the connection's window is opened again
_MAX_FRAME_SIZE = 5  # of SETTINGS
_RESPONSE = 0x12  # the first byte of a message without an error: a response within the stream's


class Http2Wire:
    """A connection with one call on each of its HTTP/2 streams; `on_end` is told when one ends."""

    def __init__(
        self,
        target: str,
        tally: Tally,
        on_end: Callable[[Http2Wire], None],
        metadata: Mapping[str, str],
        receive_buffer: int = 0,
    ) -> None:
        self._socket = connect(target, receive_buffer)
        self._tally = tally
        self._on_end = on_end
        self._calls: dict[int, Call] = {}
        self._next = 1
        self._window = _INITIAL
        self._frame_size = 1 << 14
        self._waiting: deque[bytes] = deque()
        self._buffer = bytearray(1 << 20)
        self._view = memoryview(self._buffer)
        self._end = 0
        self._received = 0
        self._decoder = Decoder(4096, 1 << 20)
        self._head = encode(
            [
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":path", _METHOD),
                (b":authority", target.encode()),
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
                *((name.encode(), value.encode()) for name, value in metadata.items()),
            ]
        )
        settings = struct.pack(">HI", 4, _LARGEST)  # INITIAL_WINDOW_SIZE
        opened = struct.pack(">I", _LARGEST - _INITIAL)
        self._socket.sendall(
            _PREFACE + _frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW, 0, 0, opened)
        )

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection, with all its calls."""
        self._socket.close()

    def start(self, message: bytes) -> None:
        """Begin a call with one request, as soon as the peer's window has room for it."""
        number, self._next = self._next, self._next + 2
        self._calls[number] = Call(time.perf_counter())
        body = _PREFIX.pack(0, len(message)) + message
        self._socket.sendall(_frame(_HEADERS, _END_HEADERS, number, self._head))
        self._waiting += _data_frames(number, body, self._frame_size)
        self._send_waiting()

    def read(self) -> None:
        """Take what has come, and count it with the time of its coming."""
        buffer = self._buffer
        received = self._socket.recv_into(self._view[self._end :])
        now = time.perf_counter()
        if not received:
            raise SystemExit("the server closed the connection")
        end = self._end + received
        at, calls, tally = 0, self._calls, self._tally
        while end - at >= 9:
            high, low, kind, flags, number = _FRAME.unpack_from(buffer, at)
            length = high << 8 | low
            after = at + 9 + length
            if after > end:
                break
            if kind == _DATA:
                call = calls[number]
                if self._is_whole(call, at + 9, length):
                    tally.message(call, now)
                else:
                    self._assemble(call, buffer[at + 9 : after], now)
            else:
                self._control(kind, flags, number, bytes(buffer[at + 9 : after]))
            at = after
        tally.count_marks(buffer, 0, at)
        self._end = end - at
        if at:
            buffer[: self._end] = buffer[at:end]
        self._renew(received)

    def _is_whole(self, call: Call, at: int, length: int) -> bool:
        """Whether a frame's payload is one message without an error, as nearly all are."""
        return (
            length > 5
            and not call.partial
            and _PREFIX.unpack_from(self._buffer, at)[1] == length - 5
            and self._buffer[at + 5] == _RESPONSE
        )

    def _assemble(self, call: Call, data: bytearray, now: float) -> None:
        """Messages that do not fill a frame each."""
        partial = call.partial
        partial += data
        while len(partial) >= 5:
            length = _PREFIX.unpack_from(partial)[1]
            if len(partial) < 5 + length:
                break
            if length and partial[5] != _RESPONSE:
                self._tally.error(call, bytes(partial[5 : 5 + length]), now)
            else:
                self._tally.message(call, now)
            del partial[: 5 + length]

    def _control(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == _HEADERS:
            self._headers(flags, number, payload)
        elif kind in (_SETTINGS, _PING):
            if not flags & _ACK:
                self._take_settings(payload if kind == _SETTINGS else b"")
                answer = payload if kind == _PING else b""
                self._socket.sendall(_frame(kind, _ACK, 0, answer))
        elif kind == _WINDOW:
            if not number:
                self._window += int.from_bytes(payload, "big")
                self._send_waiting()
        elif kind in (_RESET, _GOAWAY):
            raise SystemExit(f"the server ended a call or the connection: {payload!r}")

    def _take_settings(self, payload: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", payload):
            if name == _MAX_FRAME_SIZE:
                self._frame_size = value

    def _headers(self, flags: int, number: int, block: bytes) -> None:
        if not flags & _END_HEADERS:
            raise SystemExit("this reader knows no CONTINUATION")
        fields = dict(self._decoder.decode(block) or ())
        if flags & _END_STREAM:
            if fields.get(b"grpc-status") != b"0":
                raise SystemExit(f"a call failed: {fields}")
            self._tally.ended(self._calls.pop(number), time.perf_counter())
            self._on_end(self)

    def _send_waiting(self) -> None:
        while self._waiting and len(self._waiting[0]) - 9 <= self._window:
            frame = self._waiting.popleft()
            self._window -= len(frame) - 9
            self._socket.sendall(frame)

    def _renew(self, received: int) -> None:
        self._received += received
        if self._received > _RENEWED:
            opened = struct.pack(">I", self._received)
            self._socket.sendall(_frame(_WINDOW, 0, 0, opened))
            self._received = 0


def _data_frames(number: int, body: bytes, size: int) -> list[bytes]:
    """The frames of a stream's only message, which ends the stream."""
    return [
        _frame(_DATA, _END_STREAM if at + size >= len(body) else 0, number, body[at : at + size])
        for at in range(0, len(body), size)
    ]


def _frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    high, low = divmod(len(payload), 256)
    return _FRAME.pack(high, low, kind, flags, number) + payload
