"""Whose turn it is to write."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items by key: the keys take turns, the items of one key follow in their order."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def push(self, key: str, item: T) -> None:
        """Add an item behind the others of its key."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
        queue.append(item)

    def pop(self) -> T:
        """The next item; its key is the last to have another turn."""
        key = next(iter(self._queues))
        queue = self._queues.pop(key)
        item = queue.popleft()
        if queue:
            self._queues[key] = queue
        return item
