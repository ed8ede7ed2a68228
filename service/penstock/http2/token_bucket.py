"""How much of what costs us more than the peer we put up with."""

from __future__ import annotations

from penstock.http2.errors import ErrorCode, ProtocolError


class Patience:
    """A burst of events that refills at a rate. Knows no clock: it is told the time, in seconds."""

    __slots__ = ("_burst", "_left", "_name", "_rate", "_since")

    def __init__(self, name: str, burst: int, rate: float) -> None:
        self._name = name
        self._burst = self._left = float(burst)
        self._rate = rate
        self._since = 0.0

    def spend(self, now: float) -> None:
        """One more event; raises `ProtocolError` when there were too many."""
        self._left = min(self._burst, self._left + (now - self._since) * self._rate) - 1
        self._since = now
        if self._left < 0:
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, f"too many {self._name}")
