"""`FirstTokenPrediction`: when a request that comes now gets its first token, by recent ones."""

from __future__ import annotations

from collections import deque
from typing import Final


class FirstTokenPrediction:
    """Predicts from the rate at which recent prompts that had to wait came to their first token.

    Conservative, as refusals depend on it: it predicts nothing before there are `ENOUGH` recent
    observations, nothing for a request that finds no other waiting, and goes by a rate that three
    quarters of the observations do not reach. Times are in seconds.
    """

    ENOUGH: Final = 16
    _MOST: Final = 64
    _OLDEST: Final = 60.0

    def __init__(self) -> None:
        self._rates: deque[tuple[float, float]] = deque(maxlen=self._MOST)

    def observe(self, ahead: int, tokens: int, waited: float, now: float) -> None:
        """A prompt of `tokens` behind `ahead` others has its first token, after `waited`."""
        if ahead > 0 and waited > 0:
            self._rates.append((now, (ahead + tokens) / waited))

    def rate(self, now: float) -> float:
        """Waiting tokens that come to their first token in a second; 0 if that is not known."""
        recent = sorted(rate for at, rate in self._rates if now - at <= self._OLDEST)
        return recent[len(recent) * 3 // 4] if len(recent) >= self.ENOUGH else 0.0

    def predict(self, ahead: int, tokens: int, now: float) -> float:
        """Seconds to the first token of a prompt behind `ahead` tokens; 0 if that is not known."""
        if ahead <= 0:
            return 0.0
        rate = self.rate(now)
        return (ahead + tokens) / rate if rate > 0 else 0.0
