"""A client that leaves takes its request with it (contract H-35, HG-12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive

from penstock.core.stream import ResponseStream


@asynccontextmanager
async def closing(stream: ResponseStream, receive: Receive) -> AsyncIterator[ResponseStream]:
    """`stream`, closed when the client disconnects and in any case at the end."""
    watcher = None
    if not stream.ended:
        watcher = asyncio.create_task(_close_when_gone(stream, receive))
    try:
        yield stream
    finally:
        stream.close()
        if watcher is not None:
            watcher.cancel()
            await asyncio.wait([watcher])


async def _close_when_gone(stream: ResponseStream, receive: Receive) -> None:
    message = await receive()
    while message["type"] != "http.disconnect":
        message = await receive()
    stream.close()
