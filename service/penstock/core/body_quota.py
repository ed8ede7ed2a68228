"""The memory that request bodies take together, whatever protocol they come by."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

_OVERDRAFT = 32 << 20
"""Bytes that may be on their way when the memory is used up."""


class Charge:
    """The bytes of one body that are in memory."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size


class BodyQuota:
    """Counts the bytes of bodies, from their arrival until the last view of their memory is gone.

    `on_freed` is called then, in any thread.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.on_freed: Callable[[], None] | None = None
        self._used = 0
        self._freed: deque[int] = deque()  # filled in any thread
        # `weakref.finalize` takes five times as long for each body. Arrays, and so references to
        # them, have no hash.
        self._open: dict[int, tuple[weakref.ref[Any], Charge]] = {}

    @property
    def used(self) -> int:
        """Bytes of bodies in flight."""
        while self._freed:
            self._used -= self._freed.popleft()
        return self._used

    @property
    def exhausted(self) -> bool:
        """Whether incomplete bodies have to wait."""
        return self.used >= self.most

    @property
    def overdrawn(self) -> bool:
        """Whether so much has come beyond it that no more is read of their connections."""
        return self.used >= self.most + _OVERDRAFT

    def open(self, memory: memoryview, size: int) -> Charge:
        """Count `size` bytes of a body in this memory, which is that of a numpy array."""
        charge = Charge(0)
        self.add(charge, size)
        self.close_with(memory, charge)
        return charge

    def close_with(self, memory: memoryview, charge: Charge) -> None:
        """Count the bytes of a charge until the last view of this memory of numpy's is gone."""
        reference = weakref.ref(memory.obj, self._gone)
        self._open[id(reference)] = reference, charge

    def _gone(self, reference: weakref.ref[Any]) -> None:
        self.close(self._open.pop(id(reference))[1])

    def add(self, charge: Charge, size: int) -> None:
        """Count more bytes of the same body, in the same memory."""
        charge.size += size
        self._used += size

    def close(self, charge: Charge) -> None:
        """Count the bytes of a charge no more."""
        self._freed.append(charge.size)
        if self.on_freed is not None:
            self.on_freed()
