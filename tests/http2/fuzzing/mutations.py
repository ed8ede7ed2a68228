"""Inputs for the fuzzer: frames that make sense, frames that do not, and bytes that are none."""

from __future__ import annotations

import random
from collections.abc import Callable

from hpack import Encoder

from http2.fuzzing.services import NAME
from penstock.http2 import frames
from penstock.http2.frames import HEADER, HEADER_SIZE, ErrorCode, FrameType
from penstock.http2.grpc import PREFIX
from penstock.http2.hpack import encode

POISON = (
    frames.frame(FrameType.SETTINGS, 0, 1),
    frames.frame(FrameType.SETTINGS, 0, 0, bytes(5)),
    frames.frame(FrameType.PING, 0, 0, bytes(7)),
    frames.frame(FrameType.PUSH_PROMISE, 4, 1, bytes(4)),
    frames.frame(FrameType.WINDOW_UPDATE, 0, 0, bytes(4)),
    frames.frame(FrameType.RST_STREAM, 0, 0, bytes(4)),
    frames.frame(FrameType.DATA, 0, 0, bytes(4)),
    frames.frame(FrameType.HEADERS, 4, 0, b"\x83"),
    frames.frame(FrameType.HEADERS, 4, 2, b"\x83"),
    frames.settings([(2, 2)]),
    frames.settings([(4, 1 << 31)]),
    frames.settings([(5, 1)]),
    HEADER.pack(0xFF, 0xFFFF, 0, 0, 1),
)
"""Each is an error of the connection, wherever a frame may begin."""

_HEADERS = FrameType.HEADERS  # their state is not that of another connection
_METHODS = ("Echo", "Echo", "Infer", "Chat", "Chat", "Flood", "Wait", "Later", "Fail", "No")
_BYTES = (0, 1, 2, 3, 4, 5, 8, 9, 0x20, 0x3F, 0x40, 0x7F, 0x80, 0x82, 0xBE, 0xFF)
_SIZES = (0, 1, 4, 5, 6, 100, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)
_WINDOWS = (0, 1, 5, 1000, 65_535, 1 << 20, frames.LARGEST_WINDOW)
_EXTRA = (
    (b"grpc-timeout", b"1S"),
    (b"grpc-timeout", b"99999999H"),
    (b"grpc-timeout", b"0n"),
    (b"grpc-timeout", b"x"),
    (b"grpc-encoding", b"gzip"),
    (b"grpc-encoding", b"deflate"),
    (b"grpc-encoding", b"br"),
    (b"grpc-accept-encoding", b"gzip,identity"),
    (b"content-length", b"7"),
    (b"content-length", b"x"),
    (b"x-a", b"1"),
    (b"x-b-bin", b"AAE"),
    (b"x-b-bin", b"!"),
    (b"x-c", b"\xff"),
    (b"te", b"trailers"),
    (b"connection", b"close"),
    (b":path", b"/"),
    (b"X", b""),
)


class Generator:
    """Makes inputs of recorded frames and of its own, all from one source of chance."""

    def __init__(self, talks: list[list[bytes]], seed: int) -> None:
        self._chance = random.Random(seed)
        self.random = self._chance.random
        self._talks = talks
        self._frames = [
            frame for talk in talks for frame in talk if len(frame) < 2000 and frame[3] != _HEADERS
        ]
        self._blocks = [self._block() for _ in range(2000)]
        self._next = 1
        self._opened: list[int] = []
        self._makers: tuple[Callable[[], bytes], ...] = (
            *(self._request,) * 8,
            *(self._data,) * 6,
            self._headers,
            self._continued,
            self._continued,
            self._settings,
            self._window_update,
            self._window_update,
            self._reset,
            self._anything,
            self._recorded,
        )

    def begin(self) -> None:
        """A connection begins: its streams count from 1."""
        self._next = 1
        self._opened.clear()

    def below(self, bound: int) -> int:
        return int(self.random() * bound)

    def talk(self) -> bytes:
        """A recorded talk from its beginning, up to somewhere."""
        talk = self._talks[self.below(len(self._talks))]
        self._next += 40
        return b"".join(talk[: 1 + self.below(len(talk))])

    def structured(self) -> bytes:
        """A few frames, each of the length that it says."""
        made = [self._makers[self.below(len(self._makers))]() for _ in range(1 + self.below(4))]
        if self.random() < 0.1:
            made[-1] = self._bent(made[-1])
        return b"".join(made)

    def changed(self, data: bytes) -> bytes:
        """Some bytes changed, dropped or doubled."""
        if not data:
            return data
        found = bytearray(data)
        for _ in range(1 + self.below(4)):
            at = self.below(len(found) or 1)
            match self.below(4):
                case 0:
                    found[at : at + 1] = bytes((_BYTES[self.below(len(_BYTES))],))
                case 1:
                    found[at : at + 1] = bytes((self.below(256),))
                case 2:
                    del found[at : at + self.below(12)]
                case _:
                    found[at:at] = found[at : at + self.below(40)]
        return bytes(found)

    def raw(self) -> bytes:
        """Bytes of no order."""
        return self._chance.randbytes(self.below(200))

    # -- frames -------------------------------------------------------------------------------

    def _bent(self, data: bytes) -> bytes:
        """The last of some frames, with another payload, type, stream or flag."""
        first = frames.HEADER.unpack_from(data)
        high, low, kind, flags, stream_id = first
        end = HEADER_SIZE + (high << 16 | low)
        payload = data[HEADER_SIZE:end]
        match self.below(4):
            case 0:
                payload = self.changed(payload)[: 1 << 16]
            case 1:
                kind = self.below(11)
            case 2:
                stream_id = self._stream()
            case _:
                flags ^= 1 << self.below(8)
        return frames.frame(kind, flags, stream_id, payload) + data[end:]

    def _stream(self) -> int:
        """Mostly a stream that the client has not ended; else one of late, or none."""
        if self._opened and self.random() < 0.98:
            return self._opened[self.below(len(self._opened))]
        back = self.below(4) * 2 if self.random() < 0.95 else self.below(200)
        return max(self._next - 2 - back, 0)

    def _open(self, *, ends: bool = False) -> int:
        stream_id = self._next
        self._next += 2 if self.random() < 0.99 else 6
        if not ends:
            self._opened.append(stream_id)
        return stream_id

    def _ended(self, stream_id: int) -> None:
        if stream_id in self._opened and self.random() < 0.99:
            self._opened.remove(stream_id)

    def _request(self) -> bytes:
        """A call, as a rule with a message and an end."""
        block = self._blocks[self.below(len(self._blocks))]
        if self.random() < 0.03:
            return frames.headers(self._open(ends=True), block, 1 << 14, end_stream=True)
        stream_id = self._open()
        head = frames.headers(stream_id, block, 1 << 14, end_stream=False)
        return head + self._data(stream_id)

    def _data(self, stream_id: int = 0) -> bytes:
        """Messages or pieces of them, padded at times."""
        stream_id = stream_id or self._stream()
        if not stream_id and self.random() < 0.95:
            return self._request()
        payload, flags = self._messages(), 0
        if self.random() < 0.6:
            flags = frames.END_STREAM
            self._ended(stream_id)
        if self.random() < 0.1:
            padding = self.below(4)
            payload = bytes((padding,)) + payload + bytes(padding)
            flags |= frames.PADDED
        return frames.frame(FrameType.DATA, flags, stream_id, payload)

    def _messages(self) -> bytes:
        size = self.below(40) if self.random() < 0.95 else self.below(16_000)
        said = size if self.random() < 0.8 else _SIZES[self.below(len(_SIZES))]
        compressed = int(self.random() < 0.05)
        message = PREFIX.pack(compressed, said) + bytes(size)
        return message * (1 + self.below(3)) if self.random() < 0.2 else message

    def _headers(self) -> bytes:
        """Trailers, or what goes for them."""
        block, ends = self._blocks[self.below(len(self._blocks))], self.random() < 0.7
        if self.random() < 0.5:
            block = b"\x00\x01a\x011"
        stream_id = self._stream() or self._open(ends=ends)
        if ends:
            self._ended(stream_id)
        return frames.headers(stream_id, block, 1 << 14, end_stream=ends)

    def _continued(self) -> bytes:
        """The head of a call in two frames and more."""
        block, ends = self._blocks[self.below(len(self._blocks))], self.random() < 0.3
        cut = 1 + self.below(len(block))
        return frames.headers(self._open(ends=ends), block, cut, end_stream=ends)

    def _settings(self) -> bytes:
        if self.random() < 0.1:
            return frames.settings_ack()
        values = [(4, _WINDOWS[self.below(len(_WINDOWS))]), (1, self.below(5000))]
        values += [(5, (1 << 14) + self.below(5000)), (self.below(9), self.below(2))]
        return frames.settings(values[self.below(4) : 1 + self.below(4)])

    def _window_update(self) -> bytes:
        stream_id = 0 if self.random() < 0.3 else self._stream()
        bound = len(_WINDOWS) if self.random() < 0.02 else len(_WINDOWS) - 1
        return frames.window_update(stream_id, _WINDOWS[self.below(bound)] or 1)

    def _reset(self) -> bytes:
        stream_id = self._stream()
        if not stream_id and self.random() < 0.95:
            return frames.ping(bytes(8))
        self._ended(stream_id)
        return frames.rst_stream(stream_id, ErrorCode(self.below(14)))

    def _anything(self) -> bytes:
        """A frame of any type that is mostly harmless."""
        match self.below(4):
            case 0:
                return frames.ping(self._chance.randbytes(8), ack=self.random() < 0.5)
            case 1:
                return frames.frame(FrameType.PRIORITY, 0, self._stream() | 1, bytes(5))
            case 2:
                return frames.goaway(0, ErrorCode.NO_ERROR, "bye")
            case _:
                size = self.below(50)
                return frames.frame(
                    10 + self.below(246), self.below(256), self._stream(), bytes(size)
                )

    def _recorded(self) -> bytes:
        """A frame of a talk, put on a stream of now."""
        found = self._frames[self.below(len(self._frames))]
        high, low, kind, flags, stream_id = HEADER.unpack_from(found)
        if stream_id:
            stream_id = self._stream() or self._open()
        return HEADER.pack(high, low, kind, flags, stream_id) + found[HEADER_SIZE:]

    def _block(self) -> bytes:
        """The header block of a call: without state, with it, and broken."""
        fields = [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", f"/{NAME}/{_METHODS[self.below(len(_METHODS))]}".encode()),
            (b"content-type", b"application/grpc"),
        ]
        if self.random() < 0.6:
            fields += [_EXTRA[self.below(len(_EXTRA))] for _ in range(self.below(4))]
        if self.random() < 0.05:
            del fields[self.below(4)]
        if self.random() < 0.01:
            fields += [(b"x-long", b"v" * 4000)] * self.below(20)
        kind = self.random()
        block = Encoder().encode(fields, huffman=kind < 0.9) if kind > 0.7 else encode(fields)
        if self.random() < 0.02:
            block += bytes((0xBE + self.below(4),))  # of the dynamic table, if it has so many
        if self.random() < 0.03:
            block = bytes((0x20 | self.below(32),)) + block
        return self.changed(block) or b"\x83" if self.random() < 0.04 else block
