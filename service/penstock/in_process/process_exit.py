"""Stops servers that still run when the program ends."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from concurrent.futures import thread

logger = logging.getLogger(__name__)

_STOPS: list[Callable[[], None]] = []


def stop_at_exit(stop: Callable[[], None]) -> None:
    """Call `stop` when the program ends, unless it is withdrawn."""
    _STOPS.append(stop)


def withdraw(stop: Callable[[], None]) -> None:
    """Do not call `stop` any more."""
    if stop in _STOPS:
        _STOPS.remove(stop)


def _stop_all() -> None:
    for stop in reversed(_STOPS):
        try:
            stop()
        except Exception:  # the others are stopped too
            logger.exception("a server could not be stopped")


# Functions of `atexit` run when executors take no work any more, of which a stop needs some. Those
# of `threading`, which executors use for that, run last registered first: so ahead of theirs.
assert thread is not None
getattr(threading, "_register_atexit", atexit.register)(_stop_all)
