"""An HTTP listener for an ASGI application: uvicorn's protocol on the running event loop."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.server import ServerState

from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.connection import ConnectionRules, HttpProtocol
from penstock.gateway.observability.accesses import LoggedApp

_NEVER = 1 << 30
"""Seconds until uvicorn would close an idle connection; `HttpProtocol` does so by its limits."""

_ABORT_SECONDS = 1.0
"""Seconds that handlers may take to end after their connection was aborted."""


@asynccontextmanager
async def listening(
    app: ASGIApp,
    name: str,
    address: str,
    port: int,
    grace: ExitDeadline,
    rules: ConnectionRules | None = None,
    *,
    reuse_port: bool = False,
) -> AsyncIterator[int]:
    """Serve `app`; yields the port. Raises `OSError`, with a text for users, if it cannot listen.
    On exit, requests in flight get the rest of `grace`; then their connections are aborted.
    """
    connections = _HttpConnections(app, rules or ConnectionRules())
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

    def __init__(self, app: ASGIApp, rules: ConnectionRules) -> None:
        self._state = ServerState()
        self._lost = asyncio.Event()
        self._rules = rules
        self._config = Config(
            app if rules.access is None else LoggedApp(app, rules.access),
            http=HttpProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_NEVER,
        )
        self._config.load()

    def protocol(self) -> asyncio.Protocol:
        """The protocol factory for new connections."""
        return HttpProtocol(self._config, self._state, self._rules, self._lost.set)

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
