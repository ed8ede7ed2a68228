"""An HTTP listener on the running event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.connections.connection import ConnectionProtocol, Reserve
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.connections.open_connections import ConnectionRules, OpenConnections
from penstock.settings import TlsSettings
from penstock.system.local_socket import LocalSocket
from penstock.system.tls import server_context
from penstock.system.tls_handshakes import TlsHandshakes

_BACKLOG = 2048
_UNIX = "unix:"

_UNLIMITED = 24 * 3600.0
"""Seconds in which a TLS connection is to be closed; `SendWatch` ends one that does not get on."""


@asynccontextmanager
async def listening(
    start: Callable[[HttpCall], None],
    name: str,
    address: str,
    port: int,
    grace: ExitDeadline,
    rules: ConnectionRules | None = None,
    *,
    reserve: Reserve | None = None,
    reuse_port: bool = False,
    tls: TlsSettings | None = None,
) -> AsyncIterator[int]:
    """Answer calls with `start`; yields the port, 0 for a socket file (`unix:PATH`).

    Raises `OSError`, with a text for users, if it cannot listen. On exit, requests in flight get
    the rest of `grace`; then their connections are aborted.
    """
    rules = rules or ConnectionRules()
    connections = OpenConnections(rules)
    where = address if address.startswith(_UNIX) else f"{address}:{port}"
    remove = _nothing
    handshakes: TlsHandshakes | None = None
    try:
        options: dict[str, Any] = {"backlog": _BACKLOG}
        protocol: Callable[[], asyncio.BaseProtocol] = partial(
            ConnectionProtocol, connections, start, reserve
        )
        if tls is not None and tls.enabled:
            handshakes = TlsHandshakes(
                _context(tls), rules.descriptors, rules.limits.opening, _UNLIMITED
            )
            protocol = partial(handshakes.before, protocol)
        if address.startswith(_UNIX):
            local = LocalSocket(address.removeprefix(_UNIX), _BACKLOG)
            remove, options["sock"] = local.remove, local.socket
        else:
            options |= {"host": _host(address), "port": port, "reuse_port": reuse_port}
        listener = await asyncio.get_running_loop().create_server(protocol, **options)
    except OSError as error:
        raise OSError(_problem(error, name, where)) from error
    try:
        yield 0 if address.startswith(_UNIX) else listener.sockets[0].getsockname()[1]
    finally:
        remove()  # first: the next server takes over a socket file whose listener is closed
        listener.close()
        if handshakes is not None:
            await handshakes.close()
        await connections.close(grace)


def _nothing() -> None:
    """A TCP port has no file to remove."""


def _context(tls: TlsSettings) -> ssl.SSLContext:
    paths = tls.certificate, tls.key, tls.root_certificate
    return server_context("http/1.1", *paths, mutual=tls.mutual)


def _host(address: str) -> str:
    """The host to listen on; IPv6 addresses are written as `ipv6:[::1]` (contract H-31)."""
    return address.removeprefix("ipv6:").strip("[]")


def _problem(error: OSError, name: str, where: str) -> str:
    if error.errno == errno.EADDRINUSE:
        problem = f"Socket '{where}' already in use"
    else:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error
        if isinstance(error.filename, str):
            reason = f"{error.filename}: {reason}"
        problem = f"Socket '{where}': {reason}"
    return f"failed to start {name} service: Unavailable - {problem}"
