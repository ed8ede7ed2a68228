"""`KvEventsProof`: whether the publishers of KV events, where some are configured, send any."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

logger = logging.getLogger(__name__)

_TRIES = 5
_PATIENCE = 1.0
"""Seconds from the storing of blocks to their event, at most."""

Fill = Callable[[int, int], Awaitable[None]]
"""Has the engine store new blocks: of which rank, and which try it is, so that none is cached."""


class KvEventsProof:
    """Listens to each publisher until its first event, and then no more.

    `sources` are vLLM's configurations of publishers, by the rank of the engine.
    """

    def __init__(self, sources: Mapping[int, Any]) -> None:
        self.addresses = {
            rank: address
            for rank, source in sources.items()
            if (address := _local_address(source)) is not None
        }
        """Publishers of this machine that can be connected to, by the rank of the engine."""
        self._silent = dict(self.addresses)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def complaint(self) -> str:
        """Which publishers have sent nothing; empty if all have."""
        if not self._silent:
            return ""
        addresses = ", ".join(self._silent.values())
        return f"no KV events come from {addresses}, though blocks were stored; see prefix caching"

    async def begin(self, fill: Fill) -> None:
        """Listen, and have blocks stored until each publisher has sent something, or a few times.

        One that stays silent is listened to further.
        """
        if not self._silent:
            return
        zmq = import_module("zmq.asyncio")  # vLLM needs it too
        context = zmq.Context()
        loop = asyncio.get_running_loop()
        listening = {rank: loop.create_task(self._listen(context, rank)) for rank in self._silent}
        self._tasks = list(listening.values())
        for attempt in range(_TRIES):
            for rank in list(self._silent):
                await fill(rank, attempt)
            if self._silent:
                await asyncio.wait(self._tasks, timeout=_PATIENCE)
        if self._silent:
            logger.warning("%s", self.complaint)

    async def _listen(self, context: Any, rank: int) -> None:
        socket = context.socket(import_module("zmq").SUB)
        try:
            socket.linger = 0
            socket.subscribe(b"")
            socket.connect(self._silent[rank])
            await socket.recv_multipart()
            del self._silent[rank]
        finally:
            socket.close()

    async def close(self) -> None:
        """Stop listening."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task


def _local_address(source: Any) -> str | None:
    """The address of a publisher on this machine; `None` for one that connects to a collector."""
    if not source.enable_kv_cache_events or source.publisher != "zmq":
        return None
    address = str(source.endpoint)
    if address.startswith("ipc://"):
        return address
    if not address.startswith("tcp://") or not ("*" in address or "::" in address):
        return None
    port = address.rpartition(":")[2]
    return f"tcp://127.0.0.1:{port}"
