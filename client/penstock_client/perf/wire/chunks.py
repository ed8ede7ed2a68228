"""Chunks of HTTP/1.1's bodies of unknown length, found in what came of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Chunks:
    """Where the contents of the whole chunks lie that `data` begins with.

    `used` is where the first chunk begins that is not whole, or with `ended` what comes behind the
    last one and its trailers. With `broken` there is something else instead of a chunk.
    """

    spans: list[tuple[int, int]]
    used: int = 0
    ended: bool = False
    broken: bool = False


def whole_chunks(data: bytes | bytearray) -> Chunks:
    """The whole chunks at the start of `data`."""
    found = Chunks([])
    at = 0
    while (line := data.find(b"\r\n", at)) >= 0:
        size = _size(data[at:line])
        if size < 0:
            found.broken = True
            break
        start = line + 2
        at = start + size + 2
        if not size:
            end = data.find(b"\r\n\r\n", line)  # of the trailers, mostly none
            if end >= 0:
                found.used, found.ended = end + 4, True
            break
        if at > len(data):
            break
        found.spans.append((start, at - 2))
        found.used = at
    return found


def _size(line: bytes | bytearray) -> int:
    """The size in the line in front of a chunk, before its extensions; negative without one."""
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        return -1
