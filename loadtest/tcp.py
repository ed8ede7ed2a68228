"""Connections of clients."""

from __future__ import annotations

import socket


def connect(target: str, receive_buffer: int = 0) -> socket.socket:
    """A connection to HOST:PORT that delays nothing; without a size the kernel chooses its buffer.

    A small buffer keeps the peer's small, too, since that grows with what is under way.
    """
    host, _, port = target.rpartition(":")
    connection = socket.socket()
    if receive_buffer:  # before it connects, since the window is told then
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.connect((host, int(port)))
    return connection
