"""A connection of ours and a client of it, by bytes: no socket, no clock."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.http2 import frames
from penstock.http2.connection import Connection
from penstock.http2.errors import ErrorCode
from penstock.http2.hpack import Field, encode
from penstock.http2.keepalive import Strikes
from penstock.http2.limits import Limits
from penstock.http2.request_headers import Request, read_request
from penstock.http2.stream import Stream

HEAD: tuple[Field, ...] = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/"),
)


class Recorder(Stream):
    """A stream that keeps what it is told, and uses what it gets at once."""

    def __init__(self, connection: Connection[Request | None], stream_id: int) -> None:
        super().__init__(connection, stream_id)
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
        """Everything that has come."""
        used, self.unused = self.unused, 0
        self.connection.consumed(self, used)

    def on_end(self) -> None:
        self.ended += 1

    def on_reset(self, code: ErrorCode) -> None:
        self.resets.append(code)


def _read(fields: tuple[Field, ...] | None) -> Request | None:
    return None if fields is None else read_request(fields)


class Server:
    """A connection whose streams record. `written` is all that it has said."""

    def __init__(self, limits: Limits | None = None, strikes: Strikes | None = None) -> None:
        self.opened: dict[int, Recorder] = {}
        self.connection: Connection[Request | None] = Connection(
            limits or Limits(), _read, self._open, strikes
        )
        self.written = bytearray()
        self._rest = b""

    def _open(self, stream_id: int, request: Request | None) -> Recorder:
        stream = self.opened[stream_id] = Recorder(self.connection, stream_id)
        stream.content_left = None if request is None else request.content_length
        return stream

    def receive(self, data: bytes) -> None:
        """Bytes come in; what of them is not done with comes again with the next."""
        data = self._rest + data
        done = self.connection.receive(memoryview(data))
        self._rest = data[done:]
        self.write()

    def write(self) -> None:
        """Everything goes out that can."""
        outbox = self.connection.outbox
        while outbox and not outbox.paused:
            self.written += b"".join(outbox.take())
            outbox.pump()

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
    strikes: Strikes | None = None,
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
