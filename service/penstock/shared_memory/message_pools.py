"""Memory for large request messages, a pool for each model: no model process maps another's."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from penstock.core.buffer import Buffer
from penstock.core.change_notifier import ChangeNotifier
from penstock.core.region import RegionSlice
from penstock.shared_memory.message_memory import WORTH, MessageMemory

_MOST_POOLS = 32
"""Of more models than so many, those that were asked last have pools."""

_KEPT = 256 << 20
"""Bytes of free blocks that all pools keep together."""

ReadersOf = Callable[[str], frozenset[str]]
"""The models whose processes get the tensors of requests to this one; none of an unknown model."""


def itself(model: str) -> frozenset[str]:
    """The model alone, whatever its name."""
    return frozenset((model,))


class MessagePools:
    """The pools of models that exist. To be used on the event loop only.

    Whatever `changes` among the models, all begin anew, and the memory goes with the last message
    in it: so nobody who gets a name later reads what its bearer was sent.
    """

    def __init__(
        self, readers_of: ReadersOf = itself, changes: ChangeNotifier | None = None
    ) -> None:
        self._readers_of = readers_of
        self._changes = changes
        self._changed: asyncio.Event | None = None
        self._pools: OrderedDict[str, MessageMemory] = OrderedDict()

    @property
    def models(self) -> tuple[str, ...]:
        """Those with a pool, the one that was asked last at the end."""
        return tuple(self._pools)

    @property
    def kept(self) -> int:
        """Bytes of free blocks in all pools."""
        return sum(pool.kept for pool in list(self._pools.values()))

    def reserve(self, model: str, size: int, contents: int) -> memoryview | None:
        """Memory for a message to this model: see `MessageMemory.reserve`."""
        if size < WORTH or (pool := self._pool(model)) is None:
            return None
        oldest = next(iter(self._pools.values()))
        if oldest is not pool and oldest.kept and self.kept + size > _KEPT:
            oldest.cool()
        return pool.reserve(size, contents)

    def place(self, message: Buffer, begin: int, tensor: Buffer) -> RegionSlice | None:
        """The location of a tensor that begins at `begin` of a message; `None` for a copy."""
        for pool in reversed(self._pools.values()):
            if (found := pool.place(message, begin, tensor)) is not None:
                return found
        return None

    def _pool(self, model: str) -> MessageMemory | None:
        self._drop_old()
        pool = self._pools.get(model)
        if pool is not None:
            self._pools.move_to_end(model)
            return pool
        readers = self._readers_of(model) if model else frozenset[str]()
        if not readers:
            return None
        if len(self._pools) >= _MOST_POOLS:
            self._pools.popitem(last=False)
        pool = self._pools[model] = MessageMemory(readers, self._may_keep)
        return pool

    def _drop_old(self) -> None:
        """Drop all pools if a model was loaded or unloaded since they were made."""
        if self._changes is None or not (self._changed is None or self._changed.is_set()):
            return
        self._changed = self._changes.next
        self._pools.clear()

    def _may_keep(self, size: int) -> bool:
        """Whether a pool may keep so many more bytes; called by any thread."""
        return self.kept + size <= _KEPT


NO_POOLS = MessagePools(lambda _: frozenset())
"""Of a server without models."""
