"""An HTTP listener on the running event loop."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.connections.connection import ConnectionProtocol, Reserve
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.connections.open_connections import ConnectionRules, OpenConnections
from penstock.settings import TlsSettings
from penstock.system.certificates import ServerCertificates
from penstock.system.local_socket import LocalSocket
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
    protocol: Callable[[], asyncio.BaseProtocol] = partial(
        ConnectionProtocol, connections, start, reserve
    )
    try:
        handshakes = _handshakes(tls, rules)
        if handshakes is not None:
            protocol = partial(handshakes.before, protocol)
        file = _socket_file(address)
        listener = await _listen(protocol, file, address, port, reuse_port)
    except OSError as error:
        where = address if address.startswith(_UNIX) else f"{address}:{port}"
        raise OSError(_problem(error, name, where)) from error
    try:
        yield listener.sockets[0].getsockname()[1] if file is None else 0
    finally:
        if file is not None:
            file.remove()  # first: the next server takes over one whose listener is closed
        listener.close()
        if handshakes is not None:
            await handshakes.close()
        await connections.close(grace)


def _handshakes(tls: TlsSettings | None, rules: ConnectionRules) -> TlsHandshakes | None:
    """The handshakes in front of connections; `None` without TLS."""
    if tls is None or not tls.enabled:
        return None
    context = (rules.certificates or ServerCertificates("HTTP", tls)).context("http/1.1")
    return TlsHandshakes(context, rules.descriptors, rules.limits.opening, _UNLIMITED)


def _socket_file(address: str) -> LocalSocket | None:
    """The socket of a file, if the address is one."""
    if not address.startswith(_UNIX):
        return None
    return LocalSocket(address.removeprefix(_UNIX), _BACKLOG)


async def _listen(
    protocol: Callable[[], asyncio.BaseProtocol],
    file: LocalSocket | None,
    address: str,
    port: int,
    reuse_port: bool,
) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    if file is not None:
        return await loop.create_server(protocol, sock=file.socket, backlog=_BACKLOG)
    return await loop.create_server(
        protocol, _host(address), port, reuse_port=reuse_port, backlog=_BACKLOG
    )


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
