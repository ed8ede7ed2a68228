"""A quota of memory that several may hold together, and the queue for shares of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.core.body_quota import BodyQuota, Charge


class Share:
    """A part of a quota, in bytes: it waits in the queue, is held, and is released once."""

    __slots__ = ("_bodies", "_charge", "_on_granted", "_quota", "_released", "held", "size")

    def __init__(self, quota: MemoryQuota, size: int, on_granted: Callable[[], None]) -> None:
        self.size = size
        self.held = False
        self._quota = quota
        self._on_granted = on_granted
        self._released = False
        self._bodies: BodyQuota | None = None
        self._charge = Charge(0)

    def grant(self) -> None:
        """For the quota: it is held from now on."""
        self.held = True
        self._on_granted()

    def shrink(self, size: int) -> None:
        """Give back all but so many bytes of a share that is held."""
        freed, self.size = self.size - size, size
        self._quota.freed(freed)

    def count(self, bodies: BodyQuota) -> None:
        """Count it among the bodies in flight, too, until it is released."""
        self._bodies = bodies
        bodies.add(self._charge, self.size)

    def release(self) -> None:
        """Give it back, or leave the queue; no effect when done before."""
        if self._released:
            return
        self._released = True
        if self._bodies is not None:
            self._bodies.close(self._charge)
        if self.held:
            self._quota.freed(self.size)
        else:
            self._quota.left(self)


class MemoryQuota:
    """Bounds the bytes that are held together; shares of more than is free wait in a queue.

    It is in order: a large share is not passed by small ones that would fit already.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: deque[Share] = deque()

    def ask(self, size: int, on_granted: Callable[[], None]) -> Share:
        """Ask for a share of so many bytes, and be called once it is held, at once if that is now.

        More than the whole quota is never granted.
        """
        share = Share(self, size, on_granted)
        self._waiting.append(share)
        self._serve()
        return share

    def freed(self, size: int) -> None:
        """For shares: so many bytes are free again."""
        self._free += size
        self._serve()

    def left(self, share: Share) -> None:
        """For shares: one gives up its place in the queue."""
        self._waiting.remove(share)
        self._serve()  # those behind a large one may fit

    def _serve(self) -> None:
        while self._waiting and self._waiting[0].size <= self._free:
            share = self._waiting.popleft()
            self._free -= share.size
            share.grant()
