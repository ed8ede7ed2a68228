"""An HTTP listener for an ASGI application: uvicorn's protocol on the running event loop."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.request_scope import HEADER_NAMES
from penstock.system.fd_reserve import DescriptorReserve

_IDLE_SECONDS = 3600
"""Seconds that an idle connection is kept: longer than clients and load balancers keep it."""

_ABORT_SECONDS = 1.0
"""Seconds that handlers may take to end after their connection was aborted."""


@asynccontextmanager
async def listening(
    app: ASGIApp, name: str, address: str, port: int, grace: ExitDeadline, reuse_port: bool = False
) -> AsyncIterator[int]:
    """Serve `app`; yields the port. Raises `OSError`, with a text for users, if it cannot listen.
    On exit, requests in flight get the rest of `grace`; then their connections are aborted.
    """
    connections = _HttpConnections(app)
    try:
        listener = await asyncio.get_running_loop().create_server(
            connections.protocol, _host(address), port, reuse_port=reuse_port, backlog=2048
        )
    except OSError as error:
        raise OSError(_problem(error, name, f"{address}:{port}")) from error
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await connections.close(grace)


class _HttpConnections:
    """The open connections of one port, and the requests in flight on them."""

    def __init__(self, app: ASGIApp) -> None:
        self._state = ServerState()
        self._lost = asyncio.Event()
        self._descriptors = DescriptorReserve()
        self._config = Config(
            app,
            http=HttpToolsProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
        )
        self._config.load()

    def protocol(self) -> asyncio.Protocol:
        """The protocol factory for new connections."""
        return _HttpProtocol(self._config, self._state, self._descriptors, self._lost.set)

    async def close(self, grace: ExitDeadline) -> None:
        """Close idle connections now, others after their request; abort them after `grace`."""
        for connection in list(self._state.connections):
            connection.shutdown()
        requests = self._state.tasks
        grace.waits_for("HTTP requests", lambda: len(requests))
        await self._gone(grace.left())
        grace.cut(len(requests))
        for connection in list(self._state.connections):
            connection.transport.abort()
        await self._gone(_ABORT_SECONDS)
        for task in self._state.tasks:
            task.cancel()

    async def _gone(self, seconds: float) -> None:
        """Wait until no connection and no request is left, for at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._state.connections:
                    self._lost.clear()
                    await self._lost.wait()
                if self._state.tasks:
                    await asyncio.wait(self._state.tasks)


class _HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol; also keeps the case of header names and calls `lost` on disconnect."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        descriptors: DescriptorReserve,
        lost: Callable[[], None],
    ) -> None:
        super().__init__(config, state, {})
        self._descriptors = descriptors
        self._close_on_loss = lost

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._descriptors.admits(transport):
            transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._names: list[bytes] = []
        cast(dict[str, Any], self.scope)[HEADER_NAMES] = self._names

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._names.append(name)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._close_on_loss()


def _host(address: str) -> str:
    """The host to listen on; IPv6 addresses are written as `ipv6:[::1]` (contract H-31)."""
    return address.removeprefix("ipv6:").strip("[]")


def _problem(error: OSError, name: str, where: str) -> str:
    if error.errno == errno.EADDRINUSE:
        problem = f"Socket '{where}' already in use"
    else:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error
        problem = f"Socket '{where}': {reason}"
    return f"failed to start {name} service: Unavailable - {problem}"
