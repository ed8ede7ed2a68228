"""`Reservations`: exclusive locks on sets of model names, granted in order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager


class Reservations:
    """Serializes operations on related models; operations on unrelated ones run concurrently.

    A set is locked as a whole, so operations cannot deadlock. One that conflicts with a holder or
    with an earlier waiter queues.
    """

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._waiting: list[tuple[Set[str], asyncio.Future[None]]] = []

    @asynccontextmanager
    async def reserve(self, names: Set[str]) -> AsyncIterator[None]:
        """Lock all of `names` for the block, after holders and earlier waiters of any of them."""
        names = frozenset(names)
        if self._free(names, len(self._waiting)):
            self._held |= names
        else:
            await self._wait(names)
        try:
            yield
        finally:
            self._held -= names
            self._grant()

    async def _wait(self, names: Set[str]) -> None:
        granted = asyncio.get_running_loop().create_future()
        waiter = (names, granted)
        self._waiting.append(waiter)
        try:
            await granted
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            else:  # granted in the meantime
                self._held -= names
            self._grant()
            raise

    def _grant(self) -> None:
        """Grant the waiters without a conflict, in order of arrival."""
        at = 0
        while at < len(self._waiting):
            names, granted = self._waiting[at]
            if self._free(names, at):
                del self._waiting[at]
                self._held |= names
                granted.set_result(None)
            else:
                at += 1

    def _free(self, names: Set[str], before: int) -> bool:
        """Whether no holder and none of the first `before` waiters has one of the names."""
        earlier = (wanted for wanted, _ in self._waiting[:before])
        return names.isdisjoint(self._held) and all(names.isdisjoint(n) for n in earlier)
