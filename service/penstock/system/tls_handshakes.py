"""TLS handshakes of a listener's connections, which count as open, and as idle, from the first."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import cast

from penstock.system.eager_start import start_eagerly
from penstock.system.fd_reserve import DescriptorReserve


class TlsHandshakes:
    """The handshakes that are going on, of up to `seconds` each.

    A loop that does them itself tells nobody of a connection before its handshake is done: clients
    that never go on with theirs could take all descriptors. `context` tells the context of a new
    one, which may be another each time. `closing_seconds` is how long the end of an encrypted
    connection may take, if not as long as the loop wants.
    """

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        descriptors: DescriptorReserve,
        seconds: float,
        closing_seconds: float | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.descriptors = descriptors
        self.tasks: set[asyncio.Task[None]] = set()
        self._context = context
        self._seconds = seconds
        self._closing_seconds = closing_seconds

    def before(self, protocol: Callable[[], asyncio.BaseProtocol]) -> asyncio.BaseProtocol:
        """The protocol of a new connection, which `protocol` follows after the handshake."""
        return _Handshake(self, protocol)

    async def start(
        self, plain: asyncio.Transport, protocol: asyncio.BaseProtocol
    ) -> asyncio.Transport | None:
        """Do a handshake as a server; returns the encrypted transport. Raises `OSError`."""
        return await self.loop.start_tls(
            plain,
            protocol,
            self._context(),
            server_side=True,
            ssl_handshake_timeout=self._seconds,
            ssl_shutdown_timeout=self._closing_seconds,
        )

    async def close(self) -> None:
        """Break off those that are going on; the listener is closed."""
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)


class _Handshake(asyncio.Protocol):
    """The protocol of one connection until the end of its handshake."""

    def __init__(self, owner: TlsHandshakes, then: Callable[[], asyncio.BaseProtocol]) -> None:
        self._owner = owner
        self._then = then
        self._since = time.monotonic()
        self._transport: asyncio.Transport | None = None

    @property
    def idle_since(self) -> float | None:
        """The connection's first moment: what goes on in a handshake is no reason to keep it."""
        return self._since

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = self._transport = cast(asyncio.Transport, transport)
        owner = self._owner
        if not owner.descriptors.admits(plain, self):
            plain.abort()
            return
        # Up to its first wait now: what the client sends then reaches the handshake.
        task = start_eagerly(owner.loop, self._run(plain))
        if task is not None:
            owner.tasks.add(task)
            task.add_done_callback(owner.tasks.discard)

    def close_idle(self) -> None:
        """Close the connection: another one gets its place."""
        assert self._transport is not None
        self._transport.abort()

    async def _run(self, plain: asyncio.Transport) -> None:
        descriptors = self._owner.descriptors
        try:
            encrypted = await self._owner.start(plain, self)
        except OSError:  # the client's fault, or its time is up
            descriptors.released(plain)
            return
        except BaseException:
            descriptors.released(plain)
            raise
        if encrypted is None or encrypted.is_closing():
            descriptors.released(plain)
            return
        descriptors.handed_over(plain, encrypted)
        protocol = self._then()
        encrypted.set_protocol(protocol)
        protocol.connection_made(encrypted)
        if encrypted.is_closing():  # it was refused
            descriptors.released(encrypted)
