"""A server of gRPC that misbehaves as a test wants it to, written with frames."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from penstock.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    HEADER,
    PREFACE,
    FrameType,
    frame,
    settings,
)
from penstock.http2.hpack import Decoder, encode
from penstock.protocol import grpc_service_pb2 as pb

Frames = Iterable[bytes]
Answer = Callable[[int, str], Frames]
"""The frames that answer a call, of which it gets the stream's number and the method."""


def begun(number: int, *fields: tuple[bytes, bytes]) -> bytes:
    """The beginning of an answer."""
    given = [(b":status", b"200"), (b"content-type", b"application/grpc"), *fields]
    return frame(FrameType.HEADERS, END_HEADERS, number, encode(given))


def message(number: int, data: bytes, *, compressed: int = 0, claimed: int | None = None) -> bytes:
    """A message, which may claim another length than it has."""
    length = len(data) if claimed is None else claimed
    return frame(FrameType.DATA, 0, number, struct.pack(">BL", compressed, length) + data)


def ended(number: int, code: int = 0, text: str = "", *fields: tuple[bytes, bytes]) -> bytes:
    """The end of a call."""
    given = [(b"grpc-status", str(code).encode()), (b"grpc-message", text.encode()), *fields]
    return frame(FrameType.HEADERS, END_HEADERS | END_STREAM, number, encode(given))


def ready(number: int, *fields: tuple[bytes, bytes]) -> Frames:
    """The answer that the model is ready."""
    yield begun(number)
    yield message(number, pb.ModelReadyResponse(ready=True).SerializeToString())
    yield ended(number, 0, "", *fields)


def inferred(number: int, answer: pb.ModelInferResponse) -> Frames:
    """A whole unary answer."""
    yield begun(number)
    yield message(number, answer.SerializeToString())
    yield ended(number)


class BadServer:
    """Answers `ModelReady` with yes, and everything else as `answer` says.

    `calls` are the methods that were called, `sent` what was sent with each, behind its prefix;
    `resets` are the streams that the client has cancelled.
    """

    def __init__(self, answer: Answer, greeting: bytes | None = None) -> None:
        self.calls: list[str] = []
        self.sent: list[bytes] = []
        self._numbers: dict[int, int] = {}
        self.resets: list[int] = []
        self.reset = asyncio.Event()
        self.address = ""
        self.ready: Callable[[int], Frames] = ready
        self._answer = answer
        self._greeting = settings(()) if greeting is None else greeting
        self._writers: list[asyncio.StreamWriter] = []

    def cut(self) -> None:
        """Cut all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self._writers.append(writer)
        writer.write(self._greeting)
        try:
            await reader.readexactly(len(PREFACE))
            await self._read(reader, writer, Decoder(4096, 1 << 16))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # also where the test's loop ends first
        finally:
            writer.transport.abort()

    async def _read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, decoder: Decoder
    ) -> None:
        while True:
            high, low, kind, flags, number = HEADER.unpack(await reader.readexactly(9))
            payload = await reader.readexactly(high << 16 | low)
            if kind == FrameType.HEADERS:
                fields = dict(decoder.decode(payload) or ())
                method = fields[b":path"].rpartition(b"/")[2].decode()
                self._numbers[number] = len(self.calls)
                self.calls.append(method)
                self.sent.append(b"")
                asked = method == "ModelReady"
                for part in self.ready(number) if asked else self._answer(number, method):
                    writer.write(part)
            elif kind == FrameType.DATA:
                at = self._numbers[number]
                self.sent[at] += payload if self.sent[at] else payload[5:]
            elif kind == FrameType.RST_STREAM:
                self.resets.append(number)
                self.reset.set()
            elif kind == FrameType.SETTINGS and not flags & ACK:
                writer.write(frame(FrameType.SETTINGS, ACK, 0))


@asynccontextmanager
async def bad_server(answer: Answer, greeting: bytes | None = None) -> AsyncIterator[BadServer]:
    """A server on a port of its own, on this event loop."""
    bad = BadServer(answer, greeting)
    server = await asyncio.start_server(bad.serve, "127.0.0.1", 0)
    bad.address = f"grpc://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield bad
    finally:
        server.close()
        bad.cut()
