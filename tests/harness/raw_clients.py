"""The end of a client that speaks by bytes."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Close the connection now, with what was not sent yet.

    `close` alone waits until that is sent, which nobody does once the test has ended: the socket
    would stay open until the garbage collector finds it, in another test.
    """
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()
