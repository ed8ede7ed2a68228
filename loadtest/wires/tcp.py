"""Connections of clients."""

from __future__ import annotations

import socket

_SEGMENT = 1448  # bytes, of Ethernet


def connect(target: str, receive_buffer: int = 0) -> socket.socket:
    """A connection to HOST:PORT that delays nothing; without a size the kernel chooses its buffer.

    With a small one segments are small, too, as on a network: on the loopback, whose are of 64 KiB,
    the kernel would hold megabytes for the peer before that notices that nobody reads.
    """
    host, _, port = target.rpartition(":")
    connection = socket.socket()
    if receive_buffer:  # before it connects, since the window is told then
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.connect((host, int(port)))
    return connection
