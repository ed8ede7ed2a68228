"""`Endpoint`: one address of a remote model, and the watch of its health."""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from penstock_backends.remote.settings import Address, RemoteSettings
from penstock_backends.remote.standing import Standing

Probe = Callable[[Any], Awaitable[str]]
"""Asks an endpoint whether it serves the model: why it does not, empty if it does."""


class Endpoint(ABC):
    """One address; a subclass has its connections.

    `standing` is kept here: calls, connections and `watch` change it.
    """

    def __init__(
        self, address: Address, settings: RemoteSettings, context: ssl.SSLContext | None
    ) -> None:
        self.address = address
        self.name = str(address).encode()
        self.standing = Standing()
        self.calls = 0
        self.failed_calls = 0
        self._settings = settings
        self._tls = context
        self._failed = asyncio.Event()

    @property
    @abstractmethod
    def activity(self) -> int:
        """A number that changes whenever something has come from there."""

    @abstractmethod
    def give_up(self, reason: str) -> None:
        """Close the connections, since nothing comes; calls under way fail."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections; calls under way fail."""

    def begun(self) -> None:
        """Note that a call has begun."""
        self.calls += 1
        self.standing.in_flight += 1

    def done(self) -> None:
        """Note that a call has ended, or was cancelled."""
        self.standing.in_flight -= 1

    def fail(self, reason: str) -> None:
        """Take the endpoint out: a connection has failed, so that `watch` looks again soon."""
        self.standing.failed(reason)
        self._failed.set()

    async def watch(self, probe: Probe) -> None:
        """Look after the endpoint's health until this is cancelled."""
        while True:
            await self.look(probe)
            standing = self.standing
            pause = self._settings.health_interval if standing.up else standing.backoff()
            self._failed.clear()
            try:
                async with asyncio.timeout(pause):
                    await self._failed.wait()
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
        before = self.activity
        if (await asyncio.wait([asked], timeout=limit))[0]:
            return asked.result()
        reason = f"no answer for {limit:g} s"
        if not patient:
            return reason
        self.standing.failed(reason)
        if (await asyncio.wait([asked], timeout=max(0.0, silence - limit)))[0]:
            return asked.result()
        if self.activity == before:
            self.give_up(f"nothing has come for {silence:g} s")
        return f"no answer for {silence:g} s"


def connection_failure(error: OSError) -> str:
    """The reason of a failure without the address, which stands before it."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    return error.strerror or str(error) or type(error).__name__
