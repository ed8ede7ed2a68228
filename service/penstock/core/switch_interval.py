"""Turns of threads: how long one may hold Python's lock while others wait for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_SHORT = 0.001
"""Seconds; Python's own interval is 5 ms, which each request on the event loop would wait."""


class SwitchInterval:
    """The interpreter's switch interval, short while long work of Python runs on any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._usual = 0.0

    @contextmanager
    def short(self) -> Iterator[None]:
        """Have threads switch each millisecond within the block; from any thread."""
        with self._lock:
            if not self._users:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, _SHORT))
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    sys.setswitchinterval(self._usual)


SWITCH_INTERVAL = SwitchInterval()
"""That of this process."""
