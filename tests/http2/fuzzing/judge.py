"""One connection under attack, and what has to hold whatever comes in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from http2.fuzzing.services import Produced
from penstock.http2 import frames
from penstock.http2.frames import HEADER, HEADER_SIZE, ErrorCode, FrameType
from penstock.rpc.native.connection import ConnectionProtocol
from penstock.rpc.native.routes import CallRoute, HeaderFields
from penstock.rpc.native.server_state import ServerState

_PER_BYTE = 24
"""Bytes we may answer to a byte: the most is a header block of a few bytes, refused with words."""
_BESIDES = 4096
_OURS = frozenset((0, 1, 3, 4, 6, 7, 8, 9))


class Wire:
    """A transport that keeps nothing but counts, and checks that only frames go out."""

    def __init__(self) -> None:
        self.sent = 0
        self.ended = 0
        self.goaway: ErrorCode | None = None
        self.reading = True
        self.on_resume: Callable[[], None] = lambda: None
        self._closing = False
        self._rest = b""

    def get_extra_info(self, name: str) -> Any:
        return None

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    abort = close

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        asyncio.get_running_loop().call_soon(self.on_resume)

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def write(self, data: bytes) -> None:
        assert not self._closing, "written after the end"
        self.sent += len(data)
        data, at = self._rest + data, 0
        while at + HEADER_SIZE <= len(data):
            high, low, kind, flags, _ = HEADER.unpack_from(data, at)
            end = at + HEADER_SIZE + (high << 16 | low)
            if end > len(data):
                break
            assert kind in _OURS, f"a frame of type {kind} went out"
            if kind < FrameType.PRIORITY and flags & frames.END_STREAM:
                self.ended += 1
            if kind == FrameType.GOAWAY:
                self.goaway = ErrorCode(int.from_bytes(data[at + 13 : at + 17], "big"))
            at = end
        self._rest = data[at:]
        assert len(self._rest) < 1 << 20, "a frame that is too long went out"


class Attack:
    """A connection of the server's, fed as the event loop feeds it. `history` is all it got."""

    def __init__(
        self, server: ServerState, read: Callable[[HeaderFields], CallRoute], produced: Produced
    ) -> None:
        self.wire = Wire()
        self.wire.on_resume = self._arrive
        self.history: list[bytes] = []
        self._coming = b""
        self._received = 0
        self._produced = produced
        self._before = produced.size
        self._protocol = ConnectionProtocol(server, read)
        self._protocol.connection_made(cast(asyncio.Transport, self.wire))
        self.feed(frames.PREFACE + frames.settings([]))

    @property
    def over(self) -> bool:
        return self.wire.is_closing()

    def feed(self, data: bytes) -> None:
        """Bytes arrive at once, as far as they are read; the others when reading is resumed."""
        self.history.append(data)
        self._coming += data
        self._arrive()

    async def settle(self) -> None:
        """Until all bytes have arrived."""
        for _ in range(len(self._coming)):
            if not self._coming or self.over:
                return
            await asyncio.sleep(0)

    def _arrive(self) -> None:
        view = memoryview(self._coming)
        while view and self.wire.reading and not self.over:
            room = self._protocol.get_buffer(-1)
            size = min(len(room), len(view))
            room[:size] = view[:size]
            del room
            self._received += size
            self._protocol.buffer_updated(size)
            view = view[size:]
        self._coming = bytes(view)

    def pause(self) -> None:
        if not self.over:
            self._protocol.pause_writing()

    def resume(self) -> None:
        if not self.over:
            self._protocol.resume_writing()

    def drain(self) -> None:
        self._protocol.drain()

    def check(self) -> None:
        """Check the invariants that hold between any two inputs."""
        connection, limits = self._protocol.connection, self._protocol.server.limits
        assert connection.closing == self.over or self._protocol.send_buffer.paused, (
            "closing has an effect"
        )
        assert len(connection.streams) <= limits.max_concurrent_streams
        made = self._produced.size - self._before
        bound = _PER_BYTE * self._received + 2 * made + _BESIDES
        assert self.wire.sent <= bound, f"{self.wire.sent} bytes out, {self._received} in"
        for stream in connection.streams.values():
            assert 0 <= stream.receive_left + stream.owed <= limits.stream_window
        if self.wire.reading:
            assert len(self._protocol._rest) <= limits.longest_block + HEADER_SIZE

    def check_left(self) -> None:
        """After an error of the connection."""
        assert self.over, "an error of the connection did not end it"

    def lose(self) -> None:
        """The client is gone."""
        self.wire.close()
        self._protocol.connection_lost(None)
        assert not self._protocol.connection.streams
