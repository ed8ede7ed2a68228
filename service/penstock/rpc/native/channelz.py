"""Channelz over the native transport: a connection that counts, and messages of its counters.

It is used only where channelz is switched on.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from penstock.protocol import channelz_pb2 as pb
from penstock.rpc.native.call import RpcCall
from penstock.rpc.native.channelz_counters import CallCounters, ServerCounters, SocketCounters
from penstock.rpc.native.connection import ConnectionProtocol
from penstock.rpc.native.routes import CallRoute, HeaderFields, NotGrpcCall
from penstock.rpc.native.server_state import ServerState


@dataclass(slots=True)
class CountedServer:
    """Counters of a server, and its open connections by their channelz id."""

    counters: ServerCounters = field(default_factory=ServerCounters)
    connections: dict[int, CountingConnection] = field(default_factory=dict)
    ids: Iterator[int] = field(default_factory=lambda: count(1))


class CountingConnection(ConnectionProtocol):
    """A connection that counts its streams, calls and messages."""

    def __init__(
        self,
        server: ServerState,
        read: Callable[[HeaderFields], CallRoute],
        counted: CountedServer,
    ) -> None:
        super().__init__(server, read)
        self.counters = SocketCounters()
        self.id = next(counted.ids)
        self._counted = counted

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    @property
    def streams_succeeded(self) -> int:
        counters = self.counters
        open_streams = len(self.connection.streams)
        return counters.streams_started - counters.streams_failed - open_streams

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._counted.connections[self.id] = self

    def connection_lost(self, error: Exception | None) -> None:
        self._counted.connections.pop(self.id, None)
        super().connection_lost(error)

    def _open_stream(self, stream_id: int, route: CallRoute) -> RpcCall:
        call = super()._open_stream(stream_id, route)
        server = None if isinstance(call, NotGrpcCall) else self._counted.counters
        call.counters = CallCounters(self.counters, server)
        return call


_END = "-----END CERTIFICATE-----"


class NativeChannelzSource:
    """The `ChannelzSource` of the one server that listens on `listener`.

    `certificate` is the path of its PEM file, empty for none.
    """

    def __init__(self, counted: CountedServer, listener: socket.socket, certificate: str) -> None:
        self._counted = counted
        self._server_id = next(counted.ids)
        self._listener_id = next(counted.ids)
        self._address = address(listener.getsockname())
        self._name = _name(self._address)
        self._certificate = _first_certificate(certificate) if certificate else b""

    def servers(self, start: int) -> Iterator[pb.Server]:
        return iter([self._server()] if start <= self._server_id else [])

    def server(self, server_id: int) -> pb.Server:
        self._check(server_id)
        return self._server()

    def sockets(self, server_id: int, start: int) -> Iterator[pb.SocketRef]:
        self._check(server_id)
        connections = self._counted.connections
        ids = sorted(number for number in connections if number >= start)
        return (pb.SocketRef(socket_id=number, name=connections[number].peer) for number in ids)

    def socket(self, socket_id: int) -> pb.Socket:
        if socket_id != self._listener_id:
            return self._connection(self._counted.connections[socket_id])
        ref = pb.SocketRef(socket_id=socket_id, name=self._name)
        return pb.Socket(ref=ref, local=self._address)

    def _check(self, server_id: int) -> None:
        if server_id != self._server_id:
            raise KeyError(server_id)

    def _server(self) -> pb.Server:
        counters = self._counted.counters
        server = pb.Server(
            ref=pb.ServerRef(server_id=self._server_id),
            data=pb.ServerData(
                calls_started=counters.calls_started,
                calls_succeeded=counters.calls_succeeded,
                calls_failed=counters.calls_failed,
            ),
            listen_socket=[pb.SocketRef(socket_id=self._listener_id, name=self._name)],
        )
        _set_time(server.data.last_call_started_timestamp, counters.last_call)
        return server

    def _connection(self, connection: CountingConnection) -> pb.Socket:
        transport = connection.transport
        return pb.Socket(
            ref=pb.SocketRef(socket_id=connection.id, name=connection.peer),
            data=_data(connection),
            local=address(transport.get_extra_info("sockname")),
            remote=address(transport.get_extra_info("peername")),
            security=self._security(transport.get_extra_info("ssl_object")),
        )

    def _security(self, tls: ssl.SSLObject | None) -> pb.Security | None:
        cipher = tls.cipher() if tls is not None else None
        if tls is None or cipher is None:
            return None
        # OpenSSL has names of its own for what is older than TLS 1.3.
        kind = "standard_name" if cipher[0].startswith("TLS_") else "other_name"
        return pb.Security(
            tls=pb.Security.Tls(
                local_certificate=self._certificate,
                remote_certificate=tls.getpeercert(binary_form=True) or b"",
                **{kind: cipher[0]},
            )
        )


def address(name: Any) -> pb.Address:
    """The address that `getsockname` or `getpeername` returns."""
    if isinstance(name, tuple):
        packed = ipaddress.ip_address(name[0].partition("%")[0]).packed
        tcp = pb.Address.TcpIpAddress(ip_address=packed, port=name[1])
        return pb.Address(tcpip_address=tcp)
    path = name.decode() if isinstance(name, bytes) else name or ""
    return pb.Address(uds_address=pb.Address.UdsAddress(filename=path))


def _data(connection: CountingConnection) -> pb.SocketData:
    counters = connection.counters
    data = pb.SocketData(
        streams_started=counters.streams_started,
        streams_succeeded=connection.streams_succeeded,
        streams_failed=counters.streams_failed,
        messages_sent=counters.messages_sent,
        messages_received=counters.messages_received,
        keep_alives_sent=connection.keepalives,
    )
    data.local_flow_control_window.value = connection.send_buffer.window
    data.remote_flow_control_window.value = connection.connection.receive_window
    _set_time(data.last_remote_stream_created_timestamp, counters.last_stream)
    _set_time(data.last_message_sent_timestamp, counters.last_sent)
    _set_time(data.last_message_received_timestamp, counters.last_received)
    return data


def _set_time(timestamp: Any, nanoseconds: int) -> None:
    """Set a time; one of 0 (never) stays absent."""
    if nanoseconds:
        timestamp.FromNanoseconds(nanoseconds)


def _name(where: pb.Address) -> str:
    if where.HasField("uds_address"):
        return f"unix:{where.uds_address.filename}"
    tcp = where.tcpip_address
    host = ipaddress.ip_address(tcp.ip_address)
    return f"ipv6:[{host}]:{tcp.port}" if host.version == 6 else f"ipv4:{host}:{tcp.port}"


def _first_certificate(path: str) -> bytes:
    """The server's own certificate in DER; those of its issuers follow it in the file."""
    with open(path) as file:
        text = file.read()
    begin = text.index("-----BEGIN CERTIFICATE-----")
    end = text.index(_END, begin) + len(_END)
    return ssl.PEM_cert_to_DER_cert(text[begin:end])
