"""Load balancing over addresses, in pure code: the fewest open calls, and none that are down."""

from __future__ import annotations

from collections.abc import Container
from hashlib import blake2b

_FIRST_REST = 0.2
_LONGEST_REST = 10.0
"""Seconds for which an address is avoided after a failure; they double with each that follows."""


class Balancer:
    """Chooses among `count` addresses. Knows no clock: `now` is any clock's, in seconds."""

    def __init__(self, count: int) -> None:
        self._open = [0] * count
        self._failures = [0] * count
        self._rests_until = [float("-inf")] * count
        self._turn = 0

    def pick(self, now: float, tried: Container[int] = (), key: str = "") -> int:
        """The address of the next call: up, not `tried` yet, with the fewest open calls.

        Where all are down or tried, one of these. Calls of equal `key` go to the same address for
        as long as it is up.
        """
        up = [n for n in range(len(self._open)) if self._rests_until[n] <= now and n not in tried]
        others = [n for n in range(len(self._open)) if n not in tried]
        choice = up or others or list(range(len(self._open)))
        if key:
            return max(choice, key=lambda n: _weight(key, n))
        self._turn += 1
        return min(choice, key=lambda n: (self._open[n], (n - self._turn) % len(self._open)))

    def begin(self, index: int) -> None:
        """Count a call as open."""
        self._open[index] += 1

    def end(self, index: int) -> None:
        """Count it no more."""
        self._open[index] -= 1

    def failed(self, index: int, now: float) -> None:
        """Note that no connection was made, or that it was lost."""
        rest = min(_LONGEST_REST, _FIRST_REST * 2.0 ** min(self._failures[index], 30))
        self._failures[index] += 1
        self._rests_until[index] = now + rest

    def answered(self, index: int) -> None:
        """Note that the server there has answered, be it with an error."""
        self._failures[index] = 0
        self._rests_until[index] = float("-inf")


def _weight(key: str, index: int) -> bytes:
    """The weight of an address for a key, random but the same each time (rendezvous hashing)."""
    return blake2b(f"{index}:{key}".encode(), digest_size=8).digest()
