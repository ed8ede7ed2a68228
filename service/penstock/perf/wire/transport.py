"""Sockets that never block, with TLS where it is asked for."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens, and how connections to it are secured.

    `authority` names a certificate; empty files are the system's certificates and no certificate of
    the client's. With `unverified` any certificate will do.
    """

    host: str
    port: int
    secure: bool = False
    root_certificates: str = ""
    certificate: str = ""
    private_key: str = ""
    unverified: bool = False

    @property
    def authority(self) -> str:
        """Host and port as they stand in requests."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def context(self, protocol: str) -> ssl.SSLContext:
        """TLS settings, with the protocol that is spoken inside."""
        context = ssl.create_default_context(cafile=self.root_certificates or None)
        if self.unverified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate:
            context.load_cert_chain(self.certificate, self.private_key or None)
        context.set_alpn_protocols([protocol])
        return context


class Transport:
    """A connected socket. What it cannot send at once it keeps; `on_blocked` is told about it."""

    def __init__(self, endpoint: Endpoint, protocol: str) -> None:
        plain = socket.create_connection((endpoint.host, endpoint.port), _CONNECT_SECONDS)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._tls: ssl.SSLSocket | None = None
            if endpoint.secure:
                context = endpoint.context(protocol)
                self._tls = context.wrap_socket(plain, server_hostname=endpoint.host)
            self._socket: socket.socket = self._tls or plain
            self._socket.setblocking(False)
        except BaseException:
            plain.close()
            raise
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
            return
        sent = self._send(data)
        if sent < len(data):
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

    def receive_into(self, buffer: memoryview) -> int:
        """How many bytes were read; 0 at the end of the connection, -1 if there are none yet."""
        try:
            return self._socket.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return -1
        except OSError:
            return 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _send(self, data: bytes | memoryview) -> int:
        try:
            return self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError:
            return len(data)  # the end of the connection is seen by who reads it


def _nothing() -> None:
    """Do nothing: the owner of the transport waits for nothing."""
