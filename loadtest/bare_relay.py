"""The floor of one more hop: passes bytes of TCP connections on to another server, unread.

python -m loadtest.bare_relay PORT TARGET_PORT
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class _End(asyncio.Protocol):
    """One end of a connection that is passed on: what comes here leaves at the `other`."""

    def __init__(self, other: _End | None = None) -> None:
        self._other = other
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        # What comes when the other end has gone is for nobody.
        if self._other is not None and not self._other._transport.is_closing():
            self._other._transport.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self._other is not None:
            self._other._transport.close()


class _Front(_End):
    """The end of a client, which is read once the target is reached."""

    def __init__(self, target: int) -> None:
        super().__init__()
        self._target = target

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._transport.pause_reading()
        self._reaching = asyncio.get_running_loop().create_task(self._reach())

    async def _reach(self) -> None:
        loop = asyncio.get_running_loop()
        _, self._other = await loop.create_connection(lambda: _End(self), "127.0.0.1", self._target)
        self._transport.resume_reading()


async def main(port: int, target: int) -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: _Front(target), "127.0.0.1", port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
