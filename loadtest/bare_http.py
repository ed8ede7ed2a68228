"""The floor of calls over HTTP: uvloop and httptools, which answer with the body they were sent."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import httptools
import uvloop

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: %d\r\n\r\n"


class Echo(asyncio.Protocol):
    """One connection; its requests have bodies."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)
        self._parts: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        """Part of a body."""
        self._parts.append(data)

    def on_message_complete(self) -> None:
        """The end of a request."""
        body = b"".join(self._parts)
        self._parts.clear()
        self._transport.write(_HEAD % len(body) + body)


async def main(port: int) -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
