"""Heartbeat of a model process: detects a hang, which is silence while requests wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

_PARTS = 10
_LONGEST_TICK = 1.0


@dataclass(slots=True)
class Silence:
    """A counter of ticks without a sign of life. Knows no clock.

    So a server that was itself held up, as by a suspended machine, counts one tick for that time.
    """

    limit: int
    ticks: int = 0
    _signs: int = 0

    def begin(self, signs: int) -> None:
        """Count from now on; `signs` is how many there have ever been."""
        self._signs, self.ticks = signs, 0

    def tick(self, signs: int) -> None:
        """Count a tick, unless there was a sign since the last one."""
        if not self.ended(signs):
            self.ticks += 1

    def ended(self, signs: int) -> bool:
        """Whether there was a sign since the last check; then counting starts again."""
        if signs == self._signs:
            return False
        self.begin(signs)
        return True

    @property
    def too_long(self) -> bool:
        """Whether it has lasted for as many ticks as a process may take."""
        return self.ticks >= self.limit


class Heartbeat:
    """Hang detection for a process while requests wait; an idle one is left alone.

    Whatever comes from the process is a sign: `signs` returns their number so far. After each
    silent tick `probe` is called, which asks for one. `on_change` is called with `hung` once the
    silence has lasted for `seconds`, up to a tick more, and again with the next sign, for which a
    hung process is watched in any case: it gets no requests. With 0 seconds nothing is watched.
    """

    def __init__(
        self,
        seconds: float,
        waiting: Callable[[], bool],
        signs: Callable[[], int],
        probe: Callable[[], None],
        on_change: Callable[[bool], None],
    ) -> None:
        self.hung = False
        self._waiting = waiting
        self._signs = signs
        self._probe = probe
        self._on_change = on_change
        self._tick_seconds = min(seconds / _PARTS, _LONGEST_TICK)
        self._silence = Silence(ceil(seconds / self._tick_seconds) if seconds else 0)
        self._timer: asyncio.TimerHandle | None = None
        self._on = seconds > 0
        self._loop = asyncio.get_running_loop()

    def watch(self) -> None:
        """A request was sent to the process: watch it until none waits."""
        if self._timer is None and self._on:
            if not self.hung:
                self._silence.begin(self._signs())
            self._set_timer()

    def on_sign(self) -> None:
        """Check whether a hung process has given a sign."""
        if self.hung and self._silence.ended(self._signs()):
            self._change(hung=False)

    def close(self) -> None:
        """Watch no longer."""
        self._on = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        if not self.hung and not self._waiting():
            return
        self._set_timer()
        silence = self._silence
        if self.hung:
            self.on_sign()
        else:
            silence.tick(self._signs())
        if silence.ticks:
            self._probe()
        if silence.too_long and not self.hung:
            self._change(hung=True)

    def _set_timer(self) -> None:
        self._timer = self._loop.call_later(self._tick_seconds, self._tick)

    def _change(self, *, hung: bool) -> None:
        self.hung = hung
        self._on_change(hung)
