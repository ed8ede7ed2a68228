"""The protocol of a connection on a transport that only records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

from penstock.gateway.connections.connection import ConnectionProtocol, Reserve
from penstock.gateway.connections.http_call import ClientDisconnectError, HttpCall
from penstock.gateway.connections.open_connections import ConnectionRules, OpenConnections
from penstock.http1.requests import Exchange

_PATIENCE = 30.0

Answering = Callable[[HttpCall], Awaitable[None]]
"""Answers a call."""


def starter(answering: Answering) -> Callable[[HttpCall], None]:
    """Starts `answering`, which may find its client gone."""

    async def answer(call: HttpCall) -> None:
        with suppress(ClientDisconnectError):
            await answering(call)

    return lambda call: call.run(answer(call))


class Transport(asyncio.Transport):
    """What the protocol asks of its transport."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.reading = True
        self.closed = False

    @property
    def written(self) -> bytes:
        """All that was written."""
        return b"".join(self.writes)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if name == "socket" else default

    def fileno(self) -> int:
        return -1

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """It takes all that is written."""

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.writes.append(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Nobody reads."""

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


class Wire:
    """A protocol, and what it has parsed."""

    def __init__(
        self,
        connections: OpenConnections,
        start: Callable[[HttpCall], None],
        reserve: Reserve | None = None,
    ) -> None:
        self.protocol = ConnectionProtocol(connections, start, reserve)
        self._last: Exchange | None = None

    @property
    def waiting(self) -> int:
        """The requests that are parsed and not answered."""
        return len(self.protocol.connection.exchanges)

    @property
    def received(self) -> int:
        """Bytes of the body that is received, or was received last."""
        exchanges = self.protocol.connection.exchanges
        self._last = exchanges[-1] if exchanges else self._last
        return self._last.body.received if self._last is not None else 0

    def deliver(self, data: bytes) -> None:
        """Deliver bytes as a transport does."""
        while data:
            memory = self.protocol.get_buffer(-1)
            size = min(len(memory), len(data))
            memory[:size] = data[:size]
            data = data[size:]
            self.protocol.buffer_updated(size)


def wired(
    answering: Answering, reserve: Reserve | None = None
) -> AbstractAsyncContextManager[tuple[Wire, Transport]]:
    """A connection whose calls a handler answers."""
    return wired_to(starter(answering), reserve)


@asynccontextmanager
async def wired_to(
    start: Callable[[HttpCall], None], reserve: Reserve | None = None
) -> AsyncIterator[tuple[Wire, Transport]]:
    """A connection; the handlers of its requests are waited for at its end."""
    connections = OpenConnections(ConnectionRules())
    wire, transport = Wire(connections, start, reserve), Transport()
    wire.protocol.connection_made(transport)
    try:
        yield wire, transport
    finally:
        wire.protocol.connection_lost(None)
        async with asyncio.timeout(_PATIENCE):
            await asyncio.gather(*connections.tasks)
