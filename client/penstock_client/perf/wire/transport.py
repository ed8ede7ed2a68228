"""Sockets of a load, plain or with TLS, which block only in reads that ask for it."""

from __future__ import annotations

import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable

from penstock_client.perf.wire.endpoint import Endpoint

_CONNECT_SECONDS = 5.0
_WAIT = struct.pack("ll", 0, 50_000)  # seconds and microseconds that a read waits at most
_AT_ONCE = socket.MSG_DONTWAIT


class Transport:
    """A connected socket. What it cannot send at once it keeps; `on_blocked` is told about it."""

    def __init__(self, endpoint: Endpoint, protocol: str) -> None:
        plain = socket.create_connection((endpoint.host, endpoint.port), _CONNECT_SECONDS)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._tls: ssl.SSLSocket | None = None
            # A plain socket says of each read whether it waits; one of TLS never does.
            if endpoint.secure:
                context = endpoint.context(protocol)
                self._tls = context.wrap_socket(plain, server_hostname=endpoint.host)
                self._tls.setblocking(False)
            else:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _WAIT)
                plain.setblocking(True)
            self._socket: socket.socket = self._tls or plain
        except BaseException:
            plain.close()
            raise
        self.waits = self._tls is None
        """Whether reads can wait, and everything that there is to read shows on the socket."""
        self._unsent: deque[memoryview] = deque()
        self.on_blocked: Callable[[], None] = _nothing

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def blocked(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._unsent)

    @property
    def more(self) -> bool:
        """Whether there is more to read than the operating system knows of."""
        return self._tls is not None and self._tls.pending() > 0

    def send(self, data: bytes) -> None:
        """Send now what can be sent now, and the rest when there is room for it."""
        if self._unsent:
            self._unsent.append(memoryview(data))
        elif (sent := self._send(data)) < len(data):
            self._unsent.append(memoryview(data)[sent:])
            self.on_blocked()

    def flush(self) -> None:
        """Send of what waits as much as there is room for."""
        while self._unsent:
            part = self._unsent[0]
            sent = self._send(part)
            if sent < len(part):
                self._unsent[0] = part[sent:]
                return
            self._unsent.popleft()

    def receive_into(self, buffer: memoryview, wait: bool = False) -> int:
        """How many bytes were read; 0 at the end of the connection, -1 if there are none yet."""
        try:
            if self._tls is None:
                return self._socket.recv_into(buffer, 0, 0 if wait else _AT_ONCE)
            return self._tls.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return -1
        except OSError:
            return 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _send(self, data: bytes | memoryview) -> int:
        try:
            if self._tls is None:
                return self._socket.send(data, _AT_ONCE)
            return self._tls.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError:
            return len(data)  # a read finds the end of the connection


def _nothing() -> None:
    """Do nothing: the owner of the transport waits for nothing."""
