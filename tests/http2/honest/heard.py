"""Frames from a server: reassembled, and checked against the protocol."""

from __future__ import annotations

from dataclasses import dataclass, field

from hpack import Decoder

from penstock.http2 import frames
from penstock.http2.frames import HEADER, HEADER_SIZE, LARGEST_ID, ErrorCode, FrameType
from penstock.http2.grpc import PREFIX, PREFIX_SIZE

INITIAL_WINDOW, MAX_FRAME = 4, 5


@dataclass(slots=True)
class Answer:
    """Data received on a stream; `window` is the credit left to the server."""

    window: int
    blocks: list[list[tuple[bytes, bytes]]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: ErrorCode | None = None

    def messages(self) -> list[bytes]:
        """The messages in the body, which are whole."""
        found, at = [], 0
        while at < len(self.body):
            flag, size = PREFIX.unpack_from(self.body, at)
            assert not flag
            at += PREFIX_SIZE + size
            assert at <= len(self.body)
            found.append(bytes(self.body[at - size : at]))
        return found


@dataclass(slots=True)
class Credit:
    """The credit that the client has left."""

    connection: int = 65_535
    initial: int = 65_535
    streams: dict[int, int] = field(default_factory=dict)

    def of(self, stream_id: int) -> int:
        return min(self.connection, self.streams[stream_id])

    def took(self, stream_id: int, size: int) -> None:
        self.connection -= size
        self.streams[stream_id] -= size


class Heard:
    """Reads frames when the client listens.

    What the client has asked for counts from its acknowledgement on: `asked` are the settings
    that were not acknowledged yet.
    """

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {}
        self.credit = Credit()
        self.window = 65_535
        self.initial = 65_535
        self.max_frame = 1 << 14
        self.asked: list[dict[int, int]] = []
        self.acks = 0
        self.pongs: list[bytes] = []
        self.last = LARGEST_ID
        """The last stream that the server says it has served."""
        self.leaving = False
        self.may_ping = False
        self._pinged = False
        self._decoder = Decoder()
        self._block = bytearray()
        self._block_flags = 0
        self._data = b""

    def take(self, data: bytes) -> None:
        data, at = self._data + data, 0
        while at + HEADER_SIZE <= len(data):
            high, low, kind, flags, stream_id = HEADER.unpack_from(data, at)
            start = at + HEADER_SIZE
            end = start + (high << 16 | low)
            if end > len(data):
                break
            assert end - start <= self.max_frame, "a frame larger than the client takes"
            self._frame(FrameType(kind), flags, stream_id, data[start:end])
            at = end
        self._data = data[at:]

    def _frame(self, kind: FrameType, flags: int, stream_id: int, payload: bytes) -> None:
        assert not self._block or kind is FrameType.CONTINUATION, "a header block is torn"
        if kind in (FrameType.HEADERS, FrameType.CONTINUATION):
            self._headers(kind, flags, stream_id, payload)
        elif kind is FrameType.DATA:
            self._body(flags, stream_id, payload)
        elif kind is FrameType.SETTINGS:
            self._settings(flags, payload)
        elif kind is FrameType.WINDOW_UPDATE:
            self._widen(stream_id, int.from_bytes(payload, "big"))
        elif kind is FrameType.RST_STREAM:
            self.answers[stream_id].reset = ErrorCode(int.from_bytes(payload, "big"))
        elif kind is FrameType.PING:
            self._ping(flags, payload)
        else:
            self._goaway(kind, payload)

    def _ping(self, flags: int, payload: bytes) -> None:
        if flags & frames.ACK:
            self._pinged = False
        else:
            self.pongs.append(payload)

    def _goaway(self, kind: FrameType, payload: bytes) -> None:
        assert kind is FrameType.GOAWAY
        last, code = int.from_bytes(payload[:4], "big"), int.from_bytes(payload[4:8], "big")
        assert code == ErrorCode.NO_ERROR, payload[8:]
        assert last <= self.last
        self.leaving, self.last = True, last

    def _headers(self, kind: FrameType, flags: int, stream_id: int, payload: bytes) -> None:
        if kind is FrameType.HEADERS:
            self._block_flags = flags
        self._block += payload
        if flags & frames.END_HEADERS:
            answer = self.answers[stream_id]
            assert not answer.ended
            fields = self._decoder.decode(bytes(self._block), raw=True)
            answer.blocks.append([(bytes(name), bytes(value)) for name, value in fields])
            answer.ended = bool(self._block_flags & frames.END_STREAM)
            self._block.clear()

    def _body(self, flags: int, stream_id: int, payload: bytes) -> None:
        answer = self.answers[stream_id]
        assert answer.blocks
        assert not answer.ended
        answer.body += payload
        answer.window -= len(payload)
        self.window -= len(payload)
        if payload:
            assert answer.window >= 0, "more than the window of the stream"
            assert self.window >= 0, "more than the window of the connection"
        answer.ended = bool(flags & frames.END_STREAM)
        self.may_ping = not self._pinged

    def pinged(self) -> None:
        """The next ping has to wait for the answer, and then for a response."""
        self._pinged, self.may_ping = True, False

    def _settings(self, flags: int, payload: bytes) -> None:
        if not flags & frames.ACK:
            self._theirs(dict(frames.read_settings(memoryview(payload))))
            return
        mine = self.asked.pop(0)
        self.max_frame = mine.get(MAX_FRAME, self.max_frame)
        initial = mine.get(INITIAL_WINDOW, self.initial)
        more, self.initial = initial - self.initial, initial
        for answer in self.answers.values():
            answer.window += more

    def _theirs(self, settings: dict[int, int]) -> None:
        self.acks += 1
        credit = self.credit
        initial = settings.get(INITIAL_WINDOW, credit.initial)
        more, credit.initial = initial - credit.initial, initial
        credit.streams = {number: left + more for number, left in credit.streams.items()}

    def _widen(self, stream_id: int, increment: int) -> None:
        if not stream_id:
            self.credit.connection += increment
        elif stream_id in self.credit.streams:
            self.credit.streams[stream_id] += increment
