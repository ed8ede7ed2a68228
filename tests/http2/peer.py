"""A server connection and a client of it, by bytes: no socket, no clock."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.http2 import frames
from penstock.http2.connection import Connection
from penstock.http2.frames import ErrorCode, Limits
from penstock.http2.hpack import Field, encode
from penstock.http2.keepalive import PingStrikes
from penstock.http2.request_headers import HttpRequest, read_request
from penstock.http2.stream import Stream

HEAD: tuple[Field, ...] = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/"),
)


class Recorder(Stream):
    """A stream that records its events, and consumes its data at once."""

    def __init__(self, connection: Connection[HttpRequest | None], stream_id: int) -> None:
        window, receive_left = (
            connection.send_buffer.initial_window,
            connection.limits.stream_window,
        )
        super().__init__(stream_id, window, receive_left)
        self.connection = connection
        self.data = bytearray()
        self.ended = 0
        self.resets: list[ErrorCode] = []
        self.greedy = True
        self.unused = 0

    def on_data(self, data: memoryview) -> None:
        self.data += data
        self.unused += len(data)
        if self.greedy:
            self.use()

    def use(self) -> None:
        """Consume the data received so far."""
        used, self.unused = self.unused, 0
        self.connection.consumed(self, used)

    def on_end(self) -> None:
        self.ended += 1

    def on_reset(self, code: ErrorCode) -> None:
        self.resets.append(code)


def _read(fields: tuple[Field, ...] | None) -> HttpRequest | None:
    return None if fields is None else read_request(fields)


class Server:
    """A connection whose streams record events. `written` is its output."""

    def __init__(self, limits: Limits | None = None, strikes: PingStrikes | None = None) -> None:
        self.opened: dict[int, Recorder] = {}
        self.connection: Connection[HttpRequest | None] = Connection(
            limits or Limits(), _read, self._open, strikes
        )
        self.written = bytearray()
        self._rest = b""

    def _open(self, stream_id: int, request: HttpRequest | None) -> Recorder:
        stream = self.opened[stream_id] = Recorder(self.connection, stream_id)
        stream.content_left = None if request is None else request.content_length
        return stream

    def receive(self, data: bytes) -> None:
        """Feed bytes; those that are not consumed are fed again with the next."""
        self._rest += data
        again = True
        while again:
            done = self.connection.receive(memoryview(self._rest))
            self._rest = self._rest[done:]
            again = self.connection.parser.interrupted
        self.write()

    def write(self) -> None:
        """Write the send buffer, unless it is paused."""
        send_buffer = self.connection.send_buffer
        while send_buffer and not send_buffer.paused:
            self.written += b"".join(send_buffer.take_ready())
            send_buffer.pump()

    def said(self) -> list[tuple[int, int, int, bytes]]:
        """Type, flags, stream and payload of the frames written since the last time."""
        found = []
        while self.written:
            high, low, kind, flags, stream_id = frames.HEADER.unpack_from(self.written)
            end = frames.HEADER_SIZE + (high << 16 | low)
            found.append((kind, flags, stream_id, bytes(self.written[frames.HEADER_SIZE : end])))
            del self.written[:end]
        return found


def opened(
    limits: Limits | None = None,
    settings: Iterable[tuple[int, int]] = (),
    strikes: PingStrikes | None = None,
) -> Server:
    """A server that has had the client's preface, and whose own was heard."""
    server = Server(limits, strikes)
    server.receive(frames.PREFACE + frames.settings(settings))
    server.said()
    return server


def request(
    stream_id: int, *fields: Field, ends: bool = True, head: Iterable[Field] = HEAD
) -> bytes:
    """A request without a body."""
    return frames.headers(stream_id, encode([*head, *fields]), 1 << 14, end_stream=ends)


def error_of(server: Server) -> ErrorCode | None:
    """With what the server has left the connection; `None` while it has not."""
    codes = [
        ErrorCode(int.from_bytes(payload[4:8], "big"))
        for kind, _, _, payload in server.said()
        if kind == frames.FrameType.GOAWAY
    ]
    return codes[-1] if codes and server.connection.closing else None


def resets_of(server: Server) -> list[tuple[int, ErrorCode]]:
    """Streams that the server has reset, and why."""
    return [
        (stream_id, ErrorCode(int.from_bytes(payload, "big")))
        for kind, _, stream_id, payload in server.said()
        if kind == frames.FrameType.RST_STREAM
    ]
