"""A transport that answers as a test says, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from penstock_client.client.errors import ClientError

Act = Callable[[], Any]


class FakeTransport:
    """Takes one of `acts` for each call, the last one for all that follow: a value is the answer,
    an error is raised, and an event is waited for.
    """

    def __init__(self, *acts: Any) -> None:
        self._acts = list(acts)
        self.calls = 0
        self.called = asyncio.Event()
        self.cancelled = 0
        self.timeouts: list[float | None] = []

    async def ready(self, timeout: float | None) -> Any:
        self.calls += 1
        self.called.set()
        self.timeouts.append(timeout)
        act = self._acts.pop(0) if len(self._acts) > 1 else self._acts[0]
        if isinstance(act, asyncio.Event):
            try:
                await act.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if isinstance(act, ClientError):
            raise act
        return act

    async def words(self, timeout: float | None) -> AsyncGenerator[str, None]:
        """The words of an act; an error among them is raised."""
        self.calls += 1
        self.timeouts.append(timeout)
        act = self._acts.pop(0) if len(self._acts) > 1 else self._acts[0]
        for word in act:
            if isinstance(word, ClientError):
                raise word
            yield word
