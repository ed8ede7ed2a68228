"""`Endpoint`: one address of a remote model, its connection, and a watch of its health."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol

from penstock_backends.remote.grpc_connection import (
    UNAVAILABLE,
    CallStatus,
    GrpcCall,
    GrpcConnection,
)
from penstock_backends.remote.settings import Address, RemoteSettings
from penstock_backends.remote.standing import Standing


class Probe(Protocol):
    """Asks an endpoint whether it serves the model."""

    async def __call__(self, endpoint: Endpoint) -> str:
        """Why it does not; empty if it does."""


class Endpoint:
    """Starts calls on a connection that is opened when it is needed, and again when it is lost.

    `standing` is kept here: calls, connections and `watch` change it.
    """

    def __init__(
        self, address: Address, settings: RemoteSettings, context: ssl.SSLContext | None
    ) -> None:
        self.address = address
        self.standing = Standing()
        self.calls = 0
        self.failed_calls = 0
        self._settings = settings
        self._tls = context
        self._connection: GrpcConnection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._waiting: dict[GrpcCall, tuple[bytes, bytes]] = {}
        self._lost = asyncio.Event()

    def start(self, call: GrpcCall, head: bytes, message: bytes) -> None:
        """Send a call, once there is a connection; it is told its end in any case."""
        self.calls += 1
        self.standing.in_flight += 1
        connection = self._connection
        if connection is not None and connection.usable:
            call.connection = connection
            connection.start(call, head, message)
            return
        self._waiting[call] = head, message
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())

    def done(self) -> None:
        """Note that a call has ended, or was cancelled."""
        self.standing.in_flight -= 1

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

    async def watch(self, probe: Probe) -> None:
        """Look after the endpoint's health until this is cancelled."""
        while True:
            await self.look(probe)
            standing = self.standing
            pause = self._settings.health_interval if standing.up else standing.backoff()
            self._lost.clear()
            try:
                async with asyncio.timeout(pause):
                    await self._lost.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(standing.backoff())  # a failure that calls have met: look soon

    async def look(self, probe: Probe, *, patient: bool = True) -> None:
        """Ask once, and take the endpoint out or put it back.

        One that does not answer is taken out; who is `patient` waits on, until there was `silence`.
        """
        asked = asyncio.ensure_future(probe(self))
        try:
            reason = await self._answer(asked, patient=patient)
        finally:
            asked.cancel()
        if reason:
            self.standing.failed(reason)
        else:
            self.standing.recovered()

    async def _answer(self, asked: asyncio.Future[str], *, patient: bool) -> str:
        limit, silence = self._settings.connect_timeout, self._settings.silence
        connection = self._connection
        before = connection.activity if connection is not None else 0
        if (await asyncio.wait([asked], timeout=limit))[0]:
            return asked.result()
        reason = f"no answer for {limit:g} s"
        if not patient:
            return reason
        self.standing.failed(reason)
        if (await asyncio.wait([asked], timeout=max(0.0, silence - limit)))[0]:
            return asked.result()
        if connection is not None and connection.activity == before:
            connection.close(f"nothing has come for {silence:g} s")
        return f"no answer for {silence:g} s"

    # -- connections --------------------------------------------------------------------------

    async def _open(self) -> None:
        reason = ""
        try:
            self._connection = await self._connect()
        except TimeoutError:
            reason = f"no connection within {self._settings.connect_timeout:g} s"
        except (OSError, ssl.SSLError) as error:
            reason = _told(error)
        finally:
            self._opening = None
            waiting, self._waiting = self._waiting, {}
            if reason or self._connection is None:
                self._not_opened(waiting, reason or "it was closed")
        for call, (head, message) in waiting.items():
            if self._connection is not None:
                call.connection = self._connection
                self._connection.start(call, head, message)

    def _not_opened(self, waiting: dict[GrpcCall, tuple[bytes, bytes]], reason: str) -> None:
        self._connection = None
        self._fail(reason)
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
                    self._fail(reason)

        return lost

    def _fail(self, reason: str) -> None:
        self.standing.failed(reason)
        self._lost.set()


def _resolver(future: asyncio.Future[None]) -> Callable[[], None]:
    return lambda: None if future.done() else future.set_result(None)


def _told(error: OSError) -> str:
    """The reason of a failure without the address, which stands before it."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    return error.strerror or str(error) or type(error).__name__
