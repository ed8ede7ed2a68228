"""What our own transport has counted, as channelz tells it."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Iterator
from typing import Any

from penstock.protocol import channelz_pb2 as pb
from penstock.rpc.native.channelz_counters import ServerTally, TalliedShell

_END = "-----END CERTIFICATE-----"


class NativeConnections:
    """`Connections` of the one server that listens on `listener`.

    `certificate` names the PEM file that it shows to clients, empty for none.
    """

    def __init__(self, tally: ServerTally, listener: socket.socket, certificate: str) -> None:
        self._tally = tally
        self._server_id = next(tally.ids)
        self._listener_id = next(tally.ids)
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
        shells = self._tally.shells
        ids = sorted(number for number in shells if number >= start)
        return (pb.SocketRef(socket_id=number, name=shells[number].peer) for number in ids)

    def socket(self, socket_id: int) -> pb.Socket:
        if socket_id != self._listener_id:
            return self._connection(self._tally.shells[socket_id])
        ref = pb.SocketRef(socket_id=socket_id, name=self._name)
        return pb.Socket(ref=ref, local=self._address)

    def _check(self, server_id: int) -> None:
        if server_id != self._server_id:
            raise KeyError(server_id)

    def _server(self) -> pb.Server:
        tally = self._tally
        server = pb.Server(
            ref=pb.ServerRef(server_id=self._server_id),
            data=pb.ServerData(
                calls_started=tally.calls_started,
                calls_succeeded=tally.calls_succeeded,
                calls_failed=tally.calls_failed,
            ),
            listen_socket=[pb.SocketRef(socket_id=self._listener_id, name=self._name)],
        )
        _set_time(server.data.last_call_started_timestamp, tally.last_call)
        return server

    def _connection(self, shell: TalliedShell) -> pb.Socket:
        transport = shell.transport
        return pb.Socket(
            ref=pb.SocketRef(socket_id=shell.id, name=shell.peer),
            data=_data(shell),
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
    """What `getsockname` or `getpeername` tell."""
    if isinstance(name, tuple):
        packed = ipaddress.ip_address(name[0].partition("%")[0]).packed
        tcp = pb.Address.TcpIpAddress(ip_address=packed, port=name[1])
        return pb.Address(tcpip_address=tcp)
    path = name.decode() if isinstance(name, bytes) else name or ""
    return pb.Address(uds_address=pb.Address.UdsAddress(filename=path))


def _data(shell: TalliedShell) -> pb.SocketData:
    tally = shell.tally
    data = pb.SocketData(
        streams_started=tally.streams_started,
        streams_succeeded=shell.streams_succeeded,
        streams_failed=tally.streams_failed,
        messages_sent=tally.messages_sent,
        messages_received=tally.messages_received,
        keep_alives_sent=shell.keepalives,
    )
    data.local_flow_control_window.value = shell.outbox.window
    data.remote_flow_control_window.value = shell.connection.receive_window
    _set_time(data.last_remote_stream_created_timestamp, tally.last_stream)
    _set_time(data.last_message_sent_timestamp, tally.last_sent)
    _set_time(data.last_message_received_timestamp, tally.last_received)
    return data


def _set_time(timestamp: Any, nanoseconds: int) -> None:
    """Absent stays what has never happened."""
    if nanoseconds:
        timestamp.FromNanoseconds(nanoseconds)


def _name(where: pb.Address) -> str:
    if where.HasField("uds_address"):
        return f"unix:{where.uds_address.filename}"
    tcp = where.tcpip_address
    host = ipaddress.ip_address(tcp.ip_address)
    return f"ipv6:[{host}]:{tcp.port}" if host.version == 6 else f"ipv4:{host}:{tcp.port}"


def _first_certificate(path: str) -> bytes:
    """The server's own certificate in DER; those that vouch for it follow it in the file."""
    with open(path) as file:
        text = file.read()
    begin = text.index("-----BEGIN CERTIFICATE-----")
    return ssl.PEM_cert_to_DER_cert(text[begin : text.index(_END, begin) + len(_END)])
