"""`GrpcEndpoint`: one address of a remote model with its HTTP/2 connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from penstock_backends.remote.endpoint import Endpoint, connection_failure
from penstock_backends.remote.grpc_connection import (
    UNAVAILABLE,
    CallStatus,
    GrpcCall,
    GrpcConnection,
    Message,
)
from penstock_backends.remote.settings import Address, RemoteSettings


class GrpcEndpoint(Endpoint):
    """Starts calls on a connection that is opened when it is needed, and again when it is lost."""

    def __init__(
        self, address: Address, settings: RemoteSettings, context: ssl.SSLContext | None
    ) -> None:
        super().__init__(address, settings, context)
        self._connection: GrpcConnection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._waiting: dict[GrpcCall, tuple[bytes, Message]] = {}

    @property
    def connection(self) -> GrpcConnection | None:
        """The connection of now, if there is one."""
        return self._connection

    def start(self, call: GrpcCall, head: bytes, message: Message) -> None:
        """Send a call, once there is a connection; it is told its end in any case."""
        self.begun()
        connection = self._connection
        if connection is not None and connection.usable:
            call.connection = connection
            connection.start(call, head, message)
            return
        self._waiting[call] = head, message
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())

    def cancel(self, call: GrpcCall) -> None:
        """Cancel a call; its end is not reported."""
        self.done()
        if self._waiting.pop(call, None) is None and call.connection is not None:
            call.connection.cancel(call)

    async def close(self) -> None:
        """Close the connection; calls under way fail."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._connection is not None:
            self._connection.close()

    @property
    def activity(self) -> int:
        connection = self._connection
        return 0 if connection is None else connection.activity

    def give_up(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.close(reason)

    # -- connections --------------------------------------------------------------------------

    async def _open(self) -> None:
        reason = ""
        try:
            self._connection = await self._connect()
        except TimeoutError:
            reason = f"no connection within {self._settings.connect_timeout:g} s"
        except (OSError, ssl.SSLError) as error:
            reason = connection_failure(error)
        finally:
            self._opening = None
            waiting, self._waiting = self._waiting, {}
            if reason or self._connection is None:
                self._not_opened(waiting, reason or "it was closed")
        for call, (head, message) in waiting.items():
            if self._connection is not None:
                call.connection = self._connection
                self._connection.start(call, head, message)

    def _not_opened(self, waiting: dict[GrpcCall, tuple[bytes, Message]], reason: str) -> None:
        self._connection = None
        self.fail(reason)
        status = CallStatus(UNAVAILABLE, reason, {}, untouched=True, ours=True)
        for call in list(waiting):
            call.ended(status)
        waiting.clear()

    async def _connect(self) -> GrpcConnection:
        loop = asyncio.get_running_loop()
        greeted = loop.create_future()
        connection = GrpcConnection(
            self._settings.max_response, _resolver(greeted), self._connection_lost(greeted)
        )
        address = self.address
        async with asyncio.timeout(self._settings.connect_timeout):
            await loop.create_connection(
                lambda: connection,
                address.host,
                address.port,
                ssl=self._tls,
                server_hostname=address.host if self._tls else None,
            )
            try:
                await greeted
            except BaseException:
                connection.close()
                raise
        return connection

    def _connection_lost(
        self, greeted: asyncio.Future[None]
    ) -> Callable[[GrpcConnection, str], None]:
        def lost(connection: GrpcConnection, reason: str) -> None:
            if not greeted.done():
                greeted.set_exception(ConnectionError(reason or "it closed the connection"))
            if self._connection is connection:
                self._connection = None
                if reason:
                    self.fail(reason)

        return lost


def _resolver(future: asyncio.Future[None]) -> Callable[[], None]:
    return lambda: None if future.done() else future.set_result(None)
