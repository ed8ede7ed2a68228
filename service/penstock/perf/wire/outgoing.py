"""Requests on their way out, as far as the server's windows of HTTP/2 have room for them."""

from __future__ import annotations

import struct

from penstock.perf.wire.transport import Transport

_FRAME = struct.Struct(">HBBBI")  # length in two parts, type, flags, stream
_DATA, _HEADERS = 0, 1
_END_STREAM, _END_HEADERS = 1, 4


def frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    high, low = divmod(len(payload), 256)
    return _FRAME.pack(high, low, kind, flags, number) + payload


class _Waiting:
    """The rest of a body, and the window of its stream."""

    __slots__ = ("rest", "window")

    def __init__(self, rest: memoryview, window: int) -> None:
        self.rest = rest
        self.window = window


class Outgoing:
    """Sends requests; bodies wait for the windows of their streams and of the connection."""

    def __init__(self, transport: Transport) -> None:
        self.max_frame = 16384
        self._transport = transport
        self._window = 65535
        self._initial = 65535
        self._waiting: dict[int, _Waiting] = {}

    def send(self, number: int, head: bytes, body: bytes) -> None:
        """Open a stream with a header block, and send its body as soon as there is room."""
        opening = frame(_HEADERS, _END_HEADERS, number, head)
        size = len(body)
        if size <= min(self._window, self._initial, self.max_frame) and not self._waiting:
            self._window -= size
            self._transport.send(opening + frame(_DATA, _END_STREAM, number, body))
            return
        self._transport.send(opening)
        self._waiting[number] = _Waiting(memoryview(body), self._initial)
        self._advance(number)

    def forget(self, number: int) -> None:
        """Nobody wants the rest of a body any more."""
        self._waiting.pop(number, None)

    def opened(self, number: int, size: int) -> None:
        """The server has opened a window: a stream's, or with number 0 the connection's."""
        if number == 0:
            self._window += size
            for each in list(self._waiting):
                self._advance(each)
        elif (waiting := self._waiting.get(number)) is not None:
            waiting.window += size
            self._advance(number)

    def set_initial_window(self, size: int) -> None:
        """The server says how large windows of streams are, those of open ones included."""
        change, self._initial = size - self._initial, size
        for number, waiting in list(self._waiting.items()):
            waiting.window += change
            self._advance(number)

    def _advance(self, number: int) -> None:
        waiting = self._waiting[number]
        while (size := min(self._window, waiting.window, self.max_frame, len(waiting.rest))) > 0:
            part, waiting.rest = waiting.rest[:size], waiting.rest[size:]
            waiting.window -= size
            self._window -= size
            flags = 0 if waiting.rest else _END_STREAM
            self._transport.send(frame(_DATA, flags, number, bytes(part)))
        if not waiting.rest:
            del self._waiting[number]
