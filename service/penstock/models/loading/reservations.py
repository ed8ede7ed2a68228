"""`Reservations`: names that an operation has to itself, all of them or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager


class Reservations:
    """Loads and unloads of related models come one after the other; others go on meanwhile."""

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._waiting: list[tuple[Set[str], asyncio.Future[None]]] = []

    @asynccontextmanager
    async def reserve(self, names: Set[str]) -> AsyncIterator[None]:
        """Have all of `names`, once nobody else has one of them or was first to want one."""
        names = frozenset(names)
        if self._free(names, len(self._waiting)):
            self._held |= names
        else:
            await self._turn(names)
        try:
            yield
        finally:
            self._held -= names
            self._admit()

    async def _turn(self, names: Set[str]) -> None:
        turn = asyncio.get_running_loop().create_future()
        waiting = (names, turn)
        self._waiting.append(waiting)
        try:
            await turn
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:  # it was this one's turn just now
                self._held -= names
            self._admit()
            raise

    def _admit(self) -> None:
        """Let those in whose turn has come, in the order in which they came."""
        at = 0
        while at < len(self._waiting):
            names, turn = self._waiting[at]
            if self._free(names, at):
                del self._waiting[at]
                self._held |= names
                turn.set_result(None)
            else:
                at += 1

    def _free(self, names: Set[str], before: int) -> bool:
        """Whether neither who holds a name nor one of the first `before` in the line wants it."""
        earlier = (wanted for wanted, _ in self._waiting[:before])
        return names.isdisjoint(self._held) and all(names.isdisjoint(n) for n in earlier)
