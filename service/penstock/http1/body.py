"""The bytes of a request's body, as they arrive."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from penstock.core.body_quota import BodyQuota, Charge
from penstock.core.buffer import Buffer

_FIRST_PIECE = 1 << 20
"""Bytes to allocate at first for a large body; the system maps them as they are written."""


class Body:
    """The received bytes of one body.

    Memory grows with what arrives, whatever length the client has declared: `declared`, in bytes,
    `None` for a body in chunks. `wanted` is how many of its bytes its reader waits for. `quota`
    counts its bytes, if it is not small.
    """

    __slots__ = (
        "_charge",
        "_discarded",
        "_memory",
        "_only",
        "complete",
        "declared",
        "quota",
        "received",
        "wanted",
    )

    def __init__(self, declared: int | None) -> None:
        self.declared = declared
        self.received = 0
        self.complete = declared == 0
        self.wanted = 0
        self._only = b""  # all of it, while it came in one piece
        self._memory: memoryview | None = None
        self._discarded = False
        self.quota: BodyQuota | None = None
        self._charge: Charge | None = None

    @property
    def data(self) -> Buffer:
        """The bytes so far; they stay as they are while more arrive."""
        memory = self._memory
        return self._only if memory is None else memory[: self.received]

    def reserve(self, memory: memoryview) -> None:
        """Put the body, no byte of which has arrived yet, into this memory of its declared size."""
        self._memory = memory
        self._charge = None if self.quota is None else self.quota.open(memory, 0)

    def discard(self) -> None:
        """Forget the bytes, also those to come."""
        self._discarded = True
        self._memory = self._charge = None
        self._only = b""

    def feed(self, data: bytes) -> None:
        """Append bytes."""
        before = self.received
        self.received = before + len(data)
        if self._discarded:
            return
        if self._memory is None:
            if not before:
                self._only = data
                return
            self._only, data = b"", self._only + data
            before = 0
        self._room(self.received)[before : self.received] = data
        self._count()

    def memory(self) -> memoryview | None:
        """Memory for bytes that come next, for `filled`; `None` if they are to be fed."""
        if self._discarded or self.declared is None:
            return None
        if self._memory is None:
            only, self._only = self._only, b""
            self._room(self.received)[: self.received] = only
        return self._room(min(self.received + 1, self.declared))[self.received : self.declared]

    def filled(self, size: int) -> None:
        """Report that so many bytes were written into `memory`."""
        self.received += size
        self._count()

    def _room(self, needed: int) -> memoryview:
        """The memory, grown by doubling to hold `needed` bytes."""
        memory = self._memory
        size = 0 if memory is None else len(memory)
        if memory is None or size < needed:
            grown = self._larger(needed, size)
            if memory is not None:
                grown[:size] = memory
            self._memory = memory = grown
            if self.quota is not None:
                self._charge = self.quota.open(memory, size)
        return memory

    def _larger(self, needed: int, size: int) -> memoryview:
        """Memory for `needed` bytes and more, instead of `size`.

        The second is that of the whole body: copies of what has come would hold up others.
        """
        most = None if self.declared is None else max(self.declared, needed)
        if most is not None and size:
            with suppress(MemoryError):
                return np.empty(most, np.uint8).data
        larger = max(needed, 2 * size, _FIRST_PIECE)
        return np.empty(larger if most is None else min(larger, most), np.uint8).data

    def _count(self) -> None:
        """Count the bytes that have come into the memory."""
        if self._charge is not None and self.quota is not None:
            self.quota.add(self._charge, self.received - self._charge.size)
