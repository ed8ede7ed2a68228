"""Keys of a terminal, from the bytes that it sends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum


class Key(Enum):
    """What a key means here."""

    QUIT = "quit"
    SORT = "sort"
    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    FIRST = "first"
    LAST = "last"
    OPEN = "open"
    BACK = "back"


_KEYS = {
    b"q": Key.QUIT,
    b"s": Key.SORT,
    b"k": Key.UP,
    b"\x1b[A": Key.UP,
    b"\x1bOA": Key.UP,
    b"j": Key.DOWN,
    b"\x1b[B": Key.DOWN,
    b"\x1bOB": Key.DOWN,
    b"\x1b[5~": Key.PAGE_UP,
    b"\x1b[6~": Key.PAGE_DOWN,
    b"g": Key.FIRST,
    b"\x1b[H": Key.FIRST,
    b"\x1b[1~": Key.FIRST,
    b"\x1bOH": Key.FIRST,
    b"G": Key.LAST,
    b"\x1b[F": Key.LAST,
    b"\x1b[4~": Key.LAST,
    b"\x1bOF": Key.LAST,
    b"\r": Key.OPEN,
    b"\n": Key.OPEN,
    b"\x1b[C": Key.OPEN,
    b"\x1bOC": Key.OPEN,
    b"\x1b": Key.BACK,
    b"\x7f": Key.BACK,
    b"\x08": Key.BACK,
    b"\x1b[D": Key.BACK,
    b"\x1bOD": Key.BACK,
}
_SEQUENCE = re.compile(rb"\x1b\[[0-9;?]*[@-~]|\x1bO[@-~]|\x1b|[^\x1b]", re.DOTALL)


def keys(typed: bytes) -> Iterator[Key]:
    """The keys that `typed` has, in order; others are left out.

    A terminal sends the bytes of a key at once, so that an escape alone is the key of that name.
    """
    for sequence in _SEQUENCE.findall(typed):
        key = _KEYS.get(sequence)
        if key is not None:
            yield key
