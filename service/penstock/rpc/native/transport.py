"""The native gRPC transport: its listening socket, TLS, and shutdown."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial

from penstock.core.exit_deadline import ExitDeadline
from penstock.http2.frames import Limits
from penstock.http2.keepalive import ConnectionAges
from penstock.rpc.channelz.source import ChannelzRegistry
from penstock.rpc.context import Service
from penstock.rpc.native.channelz import CountedServer, CountingConnection, NativeChannelzSource
from penstock.rpc.native.connection import ConnectionProtocol
from penstock.rpc.native.routes import Routes
from penstock.rpc.native.server_state import ServerState
from penstock.settings import GrpcSettings, TlsSettings
from penstock.system.body_room import BodyRoom
from penstock.system.certificates import ServerCertificates
from penstock.system.fd_reserve import DescriptorReserve
from penstock.system.local_socket import LocalSocket
from penstock.system.tls_handshakes import TlsHandshakes

_BACKLOG = 1024
_UNIX = "unix:"


@asynccontextmanager
async def open_native(
    services: Iterable[Service],
    settings: GrpcSettings,
    grace: ExitDeadline,
    limits: Limits | None = None,
    *,
    registry: ChannelzRegistry | None = None,
    descriptors: DescriptorReserve | None = None,
    bodies: BodyRoom | None = None,
    ages: ConnectionAges | None = None,
    certificates: ServerCertificates | None = None,
) -> AsyncIterator[int]:
    """Serve `services`; yields the port, 0 for a Unix socket.

    With a `registry`, connections are counted, and the counters registered there. `descriptors` and
    `bodies` are shared with other ports; `ages` hold for what the settings do not say;
    `certificates` are those of the settings, followed. On closing, running calls get what is left
    of `grace`. Raises `OSError` if the address is in use or invalid.
    """
    descriptors = descriptors or DescriptorReserve()
    state = ServerState(
        limits or _limits(settings),
        settings.keepalive,
        settings.response_compression,
        encrypted=settings.tls.enabled,
        descriptors=descriptors,
        bodies=bodies,
        ages=ages,
    )
    handshakes: TlsHandshakes | None = None
    if settings.tls.enabled:
        context = (certificates or ServerCertificates("gRPC", settings.tls)).context("h2")
        handshakes = TlsHandshakes(context, descriptors, state.ages.opening)
    listener, remove = _listen(settings)
    protocol = _protocol(services, state, listener, settings.tls, registry)
    if handshakes is not None:
        protocol = partial(handshakes.before, protocol)
    server = await asyncio.get_running_loop().create_server(
        protocol, sock=listener, backlog=_BACKLOG
    )
    try:
        yield _port(listener)
    finally:
        remove()  # first: the next server takes over a socket file whose listener is closed
        server.close()
        if handshakes is not None:
            await handshakes.close()
        grace.waits_for("gRPC calls", state.calls)
        grace.cut(await state.close(grace.left()))


def _protocol(
    services: Iterable[Service],
    state: ServerState,
    listener: socket.socket,
    tls: TlsSettings,
    registry: ChannelzRegistry | None,
) -> Callable[[], asyncio.BaseProtocol]:
    """The factory of connections; with a `registry`, of such that count for channelz."""
    read = Routes(services).read
    if registry is None:
        return partial(ConnectionProtocol, state, read)
    counted = CountedServer()
    registry.source = NativeChannelzSource(counted, listener, _certificate(tls))
    return partial(CountingConnection, state, read, counted)


def _listen(settings: GrpcSettings) -> tuple[socket.socket, Callable[[], None]]:
    """The listening socket, and a function that removes its file, if it has one."""
    address = settings.address
    try:
        if address.startswith(_UNIX):
            local = LocalSocket(address.removeprefix(_UNIX), _BACKLOG)
            return local.socket, local.remove
        host = address.removeprefix("ipv6:").removeprefix("[").removesuffix("]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server(
            (host, settings.port),
            family=family,
            backlog=_BACKLOG,
            reuse_port=settings.reuse_port,
            dualstack_ipv6=family is socket.AF_INET6 and host == "::",
        )
        return listener, _nothing
    except OSError as error:
        reason = "already in use "
        if error.errno != errno.EADDRINUSE:
            reason = f"cannot be listened on: {error.strerror or error}"
        raise OSError(f"Socket '{address}:{settings.port}' {reason}") from error


def _limits(settings: GrpcSettings) -> Limits:
    return Limits(
        max_message_size=settings.max_message_size,
        max_control_size=settings.max_control_message_size,
    )


def _nothing() -> None:
    """A TCP port has no file to remove."""


def _port(listener: socket.socket) -> int:
    return 0 if listener.family == socket.AF_UNIX else int(listener.getsockname()[1])


def _certificate(settings: TlsSettings) -> str:
    return settings.certificate if settings.enabled else ""
