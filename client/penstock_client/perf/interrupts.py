"""Ctrl-C and SIGTERM: both end a load, and what was measured until then is reported."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from types import FrameType

_APART = 1.0
"""Seconds between signals that are meant as several."""

_USUAL = (signal.default_int_handler, signal.SIG_DFL)
"""Python's own handlers. What a program has set itself, or ignores, stays as it is."""


@contextmanager
def single_interrupts() -> Iterator[None]:
    """Signals that end a load raise `KeyboardInterrupt`, and those that come at once one only.

    Programs that start others, such as `timeout`, pass on what the terminal or they themselves
    have sent to the whole group already; the second signal would end the report of the first.
    """
    last = -inf

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > _APART:
            last = now
            raise KeyboardInterrupt

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    handled = {each: handler for each, handler in before.items() if handler in _USUAL}
    for each in handled:
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        for each, handler in handled.items():
            signal.signal(each, handler)
