"""`HttpEndpoint`: one address of a remote model with its HTTP/1.1 connections."""

from __future__ import annotations

import asyncio
import ssl

from penstock_backends.remote.endpoint import Endpoint, connection_failure
from penstock_backends.remote.http_connection import HttpCall, HttpConnection
from penstock_backends.remote.settings import Address, RemoteSettings

_MOST_IDLE = 64
"""Connections that are kept without an exchange."""


class HttpEndpoint(Endpoint):
    """Starts exchanges, each on a connection of its own for as long as it lasts."""

    def __init__(
        self, address: Address, settings: RemoteSettings, context: ssl.SSLContext | None
    ) -> None:
        super().__init__(address, settings, context)
        self._idle: list[HttpConnection] = []
        self._open: set[HttpConnection] = set()
        self._opening: dict[HttpCall, asyncio.Task[None]] = {}
        self._activity = 0
        fields = [(b"host", address.authority.encode()), *settings.fields(address)]
        self._head = b"".join(b"%s: %s\r\n" % one for one in fields)

    @property
    def activity(self) -> int:
        return self._activity + sum([one.activity for one in self._open])

    def start(
        self,
        call: HttpCall,
        method: str,
        path: str,
        fields: list[tuple[bytes, bytes]],
        body: bytes = b"",
    ) -> None:
        """Send a request for a path below the address's own; it is told its end in any case."""
        self.begun()
        line = f"{method} {self.address.path}{path} HTTP/1.1\r\n".encode()
        named = b"".join([b"%s: %s\r\n" % one for one in fields])
        length = b"content-length: %d\r\n" % len(body) if body or method == "POST" else b""
        request = b"".join((line, self._head, named, length, b"\r\n", body))
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                connection.start(call, request)
                return
        task = asyncio.get_running_loop().create_task(self._connect(call, request))
        self._opening[call] = task

    def cancel(self, call: HttpCall) -> None:
        """Cancel an exchange; its end is not reported."""
        self.done()
        if (opening := self._opening.pop(call, None)) is not None:
            opening.cancel()
        elif call.connection is not None:
            call.connection.cancel(call)

    def give_up(self, reason: str) -> None:
        for connection in list(self._open):
            connection.close(reason)

    async def close(self) -> None:
        tasks = list(self._opening.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.give_up("the connection was closed")

    async def _connect(self, call: HttpCall, request: bytes) -> None:
        address, limit = self.address, self._settings.connect_timeout
        reason = "it was closed"
        connection = HttpConnection(self._free, self._lost)
        try:
            async with asyncio.timeout(limit):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection,
                    address.host,
                    address.port,
                    ssl=self._tls,
                    server_hostname=address.host if self._tls else None,
                )
            reason = ""
        except TimeoutError:
            reason = f"no connection within {limit:g} s"
        except (OSError, ssl.SSLError) as error:
            reason = connection_failure(error)
        finally:
            wanted = self._opening.pop(call, None) is not None
        if reason:
            self.fail(reason)
            if wanted:
                call.ended(reason, untouched=True)
            return
        self._open.add(connection)
        if wanted and connection.usable:
            connection.start(call, request)
        elif wanted:
            call.ended("the server closed the connection", untouched=True)
        else:
            connection.close()

    def _free(self, connection: HttpConnection) -> None:
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def _lost(self, connection: HttpConnection) -> None:
        if connection in self._open:
            self._activity += connection.activity
            self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
