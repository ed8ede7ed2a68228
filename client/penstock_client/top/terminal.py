"""A terminal that sends each key at once, and the wake-up of the thread that waits for its keys."""

from __future__ import annotations

import os
import select
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

_MOST = 1024
"""Bytes that are read at once."""


@contextmanager
def each_key(descriptor: int) -> Iterator[None]:
    """Have keys sent at once and not shown; the terminal is as before at the end.

    Ctrl-C still interrupts. Ctrl-Z does nothing, since it would leave the screen as it is.
    """
    former = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor, termios.TCSANOW)
        now = termios.tcgetattr(descriptor)
        now[6][termios.VSUSP] = os.fpathconf(descriptor, "PC_VDISABLE").to_bytes(1, "little")
        termios.tcsetattr(descriptor, termios.TCSANOW, now)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, former)


def terminal_size(descriptor: int) -> tuple[int, int]:
    """Width and height now, in cells; 80 by 24 where the terminal does not know."""
    try:
        width, height = os.get_terminal_size(descriptor)
    except OSError:  # it is gone, which the next reading of a key tells
        width = height = 0
    return width or 80, height or 24


class WakeUp:
    """Ends a wait for keys from another thread."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        os.set_blocking(self._read, False)

    def call(self) -> None:
        """End the wait for keys, or the next one if there is none now."""
        try:
            os.write(self._write, b"!")
        except BlockingIOError:
            pass  # it is woken already
        except OSError:
            pass  # the screen has ended

    def wait(self, descriptor: int, seconds: float) -> bytes | None:
        """What was typed; empty after a wake-up or `seconds`, `None` once the terminal is gone."""
        ready, _, _ = select.select([descriptor, self._read], [], [], seconds)
        if self._read in ready:
            os.read(self._read, _MOST)
        if descriptor not in ready:
            return b""
        try:
            return os.read(descriptor, _MOST) or None
        except OSError:
            return None
