"""Requests on their way out, as far as the server's windows of HTTP/2 have room for them."""

from __future__ import annotations

import struct

from penstock_client.perf.wire.call import Request
from penstock_client.perf.wire.transport import Transport

_FRAME = struct.Struct(">HBBBI")  # length in two parts, type, flags, stream
_STREAM = struct.Struct(">I")
_PREFIX = struct.Struct(">BI")  # compressed, length
_BEGIN = 5  # bytes of a frame in front of the number of its stream
_DATA, _HEADERS = 0, 1
_END_STREAM, _END_HEADERS = 1, 4


def frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    high, low = divmod(len(payload), 256)
    return _FRAME.pack(high, low, kind, flags, number) + payload


def framed(head: bytes, message: bytes) -> Request:
    """A call's header block and its only message as frames, cut where the stream's number goes."""
    body = _PREFIX.pack(0, len(message)) + message
    high, low = divmod(len(body), 256)
    # The length of a body for more than one frame is not used.
    begin = _FRAME.pack(high & 0xFFFF, low, _DATA, _END_STREAM, 0)[:_BEGIN]
    return frame(_HEADERS, _END_HEADERS, 0, head)[:_BEGIN], head + begin, body


class _Waiting:
    """The rest of a body, and the window of its stream."""

    __slots__ = ("rest", "window")

    def __init__(self, rest: memoryview, window: int) -> None:
        self.rest = rest
        self.window = window


class Outgoing:
    """Sends requests; bodies wait for the windows of their streams and of the connection."""

    def __init__(self, transport: Transport) -> None:
        self._max_frame = self._whole = 16384
        self._transport = transport
        self._window = 65535
        self._initial = 65535
        self.waiting: dict[int, _Waiting] = {}
        """Streams whose bodies are not sent to their ends."""
        self._parts: list[bytes] = []

    def send(self, number: int, request: Request) -> None:
        """Open a stream with a header block, and send its body as soon as there is room."""
        begin, between, body = request
        stream = _STREAM.pack(number)
        size = len(body)
        if size <= self._whole and size <= self._window and not self.waiting:
            self._window -= size
            self._parts += (begin, stream, between, stream, body)
            return
        self._parts += (begin, stream, between[:-_BEGIN])
        self.waiting[number] = _Waiting(memoryview(body), self._initial)
        self._advance(number)

    def queue(self, data: bytes) -> None:
        """Send a frame behind what was sent before."""
        self._parts.append(data)

    def flush(self) -> None:
        """Hand what is to be sent to the transport, all of it at once."""
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self._transport.send(data)

    def forget(self, number: int) -> None:
        """Nobody wants the rest of a body any more."""
        self.waiting.pop(number, None)

    def opened(self, number: int, size: int) -> None:
        """The server has opened a window: a stream's, or with number 0 the connection's."""
        if number == 0:
            self._window += size
            for each in list(self.waiting):
                self._advance(each)
        elif (waiting := self.waiting.get(number)) is not None:
            waiting.window += size
            self._advance(number)

    def set_initial_window(self, size: int) -> None:
        """The server says how large windows of streams are, those of open ones included."""
        change, self._initial = size - self._initial, size
        self._whole = min(self._initial, self._max_frame)
        for number, waiting in list(self.waiting.items()):
            waiting.window += change
            self._advance(number)

    def set_max_frame(self, size: int) -> None:
        """The server says how large frames may be."""
        self._max_frame = size
        self._whole = min(self._initial, self._max_frame)

    def _advance(self, number: int) -> None:
        waiting = self.waiting[number]
        self.flush()  # large parts are not copied once more
        while (size := min(self._window, waiting.window, self._max_frame, len(waiting.rest))) > 0:
            part, waiting.rest = waiting.rest[:size], waiting.rest[size:]
            waiting.window -= size
            self._window -= size
            flags = 0 if waiting.rest else _END_STREAM
            self._transport.send(frame(_DATA, flags, number, bytes(part)))
        if not waiting.rest:
            del self.waiting[number]
