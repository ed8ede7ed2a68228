"""One connection of an honest client, from its beginning to its end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, cast

from http2.honest.client import Client
from penstock.http2.frames import LARGEST_ID
from penstock.rpc.native.connection import ConnectionProtocol
from penstock.rpc.native.routes import CallRoute, HeaderFields
from penstock.rpc.native.server_state import ServerState


class _Socket:
    """Keeps what is written until the client listens."""

    def __init__(self) -> None:
        self.said = bytearray()
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return None

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.said += data

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))


class Visit:
    """Feeds a server as the event loop does, by chance of `seed`; at times it asks it to leave."""

    def __init__(
        self, server: ServerState, read: Callable[[HeaderFields], CallRoute], seed: int
    ) -> None:
        self._chance = random.Random(seed)
        self._drains = self._chance.random() < 0.3
        self.client = Client(self._chance)
        self._socket = _Socket()
        self._protocol = ConnectionProtocol(server, read)
        self._protocol.connection_made(cast(asyncio.Transport, self._socket))

    async def run(self, steps: int) -> None:
        """Run `steps` steps, then all until every response is complete; raises for a wrong one."""
        chance = self._chance
        self._feed(self.client.begin())
        self._listen()
        for _ in range(steps):
            said = b"".join(self.client.step() for _ in range(chance.randrange(1, 5)))
            cut = chance.randrange(len(said) + 1)
            self._feed(said[:cut])
            if chance.random() < 0.3:
                await asyncio.sleep(0)
            self._feed(said[cut:])
            if chance.random() < 0.5:
                await asyncio.sleep(0)
            if chance.random() < 0.3:
                self._listen()
            self._weather(chance.random())
        await self._finish()
        self._check()

    def leave(self) -> None:
        self._socket.closed = True
        self._protocol.connection_lost(None)

    def _feed(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self._socket.closed:
            room = self._protocol.get_buffer(-1)
            size = min(len(room), len(view))
            room[:size] = view[:size]
            del room
            self._protocol.buffer_updated(size)
            view = view[size:]

    def _listen(self) -> None:
        self.client.heard.take(bytes(self._socket.said))
        self._socket.said.clear()

    def _weather(self, chance: float) -> None:
        if chance < 0.1:
            self._protocol.pause_writing()
        elif chance < 0.3:
            self._protocol.resume_writing()
        elif chance < 0.31 and self._drains:
            self._protocol.drain()

    async def _finish(self) -> None:
        self._protocol.resume_writing()
        for _ in range(3000):
            await asyncio.sleep(0)
            self._listen()
            if self.client.done() and (self._socket.closed or not self.client.heard.leaving):
                return
            self._feed(self.client.finish())
        raise AssertionError("calls that are not answered")

    def _check(self) -> None:
        client = self.client
        assert self._socket.closed == (client.heard.last != LARGEST_ID)
        for number, call in client.calls.items():
            answer = client.heard.answers[number]
            assert dict(answer.blocks[-1])[b"grpc-status"] == call.status, (call, answer)
            assert answer.messages() == (call.messages if call.status == b"0" else []), call
            kept = [pair for pair in answer.blocks[0] if pair[0].startswith(b"x-")]
            assert not call.metadata or kept == call.metadata, (kept, call.metadata)
        assert not self._protocol.connection.streams
