"""Stands in for an engine that publishes KV events."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec


class Publisher:
    """Publishes to whoever has subscribed, and sees who comes and goes."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket

    async def subscriber(self) -> bool:
        """Whether somebody has come; otherwise somebody has gone."""
        async with asyncio.timeout(20):
            return bool((await self._socket.recv())[0])

    def close(self) -> None:
        self._socket.close()

    async def publish(self, number: int, batch: Any) -> None:
        await self._socket.send_multipart(
            [b"", number.to_bytes(8, "big"), msgspec.msgpack.encode(batch)]
        )
