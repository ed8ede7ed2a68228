"""A server of OpenAI's API that answers as a test wants it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def whole(answer: Any, status: int = 200, *headers: str) -> bytes:
    """A whole answer with a body of JSON."""
    body = json.dumps(answer).encode()
    lines = [f"HTTP/1.1 {status} Some", "content-type: application/json", *headers]
    head = "\r\n".join([*lines, f"content-length: {len(body)}", "", ""])
    return head.encode() + body


def events(*data: Any, end: bool = True) -> Iterable[bytes]:
    """An answer of server-sent events in chunks, each a write; `end` says whether it is whole."""
    yield (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    for one in data:
        text = one if isinstance(one, str) else json.dumps(one)
        line = f"data: {text}\n\n".encode()
        yield b"%x\r\n%s\r\n" % (len(line), line)
    if end:
        yield b"0\r\n\r\n"


def text(piece: str, reason: str | None = None, index: int = 0) -> dict[str, Any]:
    """The data of an event with a piece of a completion."""
    return {"choices": [{"index": index, "text": piece, "finish_reason": reason}]}


class OpenAiPeer:
    """Serves a list of models, and to every POST what `answer` is: parts, an empty one of which
    closes the connection, `None` of which waits for the client to leave.
    """

    def __init__(self, answer: Iterable[bytes | None], models: Any = ("far",)) -> None:
        self.answer = list(answer)
        self.models: Any = {"data": [{"id": name} for name in models]}
        self.bodies: list[Any] = []
        self.heads: list[str] = []
        self.left = asyncio.Event()
        self.connections = 0
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                if head.startswith("GET "):
                    writer.write(whole(self.models))
                    continue
                self.heads.append(head)
                length = int(head.lower().partition("content-length: ")[2].split()[0])
                self.bodies.append(json.loads(await reader.readexactly(length)))
                if not await self._write(reader, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # also where the test's loop ends first
        finally:
            writer.transport.abort()

    async def _write(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        for part in self.answer:
            if part is None:
                await reader.read()
                self.left.set()
                return False
            if not part:
                return False
            writer.write(part)
            await writer.drain()
        return True


@asynccontextmanager
async def openai_peer(
    answer: Iterable[bytes | None], models: Any = ("far",)
) -> AsyncIterator[OpenAiPeer]:
    """A server on a port of its own, on this event loop."""
    peer = OpenAiPeer(answer, models)
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    peer.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield peer
    finally:
        server.close()
