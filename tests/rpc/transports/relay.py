"""A relay between a client and a server that counts the bytes that pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Relay:
    """`sent` and `received` are bytes from and to the clients, who connect to `port`."""

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0
        self.port = 0
        self._connections: set[asyncio.Task[None]] = set()

    def accept(
        self, server: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass on what one connection brings, to the server's port and back."""
        self._connections.add(asyncio.create_task(self._pass_on(server, reader, writer)))

    async def ended(self) -> None:
        """Wait until every connection is closed, on both sides."""
        await asyncio.gather(*self._connections)

    async def _pass_on(
        self, server: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", server)
        await asyncio.gather(self._up(reader, to_server), self._down(from_server, writer))

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                self.sent += len(data)
                writer.write(data)
        await _close(writer)

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                self.received += len(data)
                writer.write(data)
        await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@asynccontextmanager
async def relayed(server: int) -> AsyncIterator[Relay]:
    relay = Relay()
    listening = await asyncio.start_server(
        lambda reader, writer: relay.accept(server, reader, writer), "127.0.0.1"
    )
    relay.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield relay
        await relay.ended()
