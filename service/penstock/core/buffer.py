"""The types of memory buffers in which tensors and messages travel."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview

_WORTH_KEEPING = 8 << 10
"""Bytes from which a part is cheaper to write by itself than to join with others."""


def octets(buffer: Buffer) -> Buffer:
    """A view of the buffer as single bytes, so that its `len` is its size in bytes."""
    if isinstance(buffer, memoryview) and (buffer.format != "B" or buffer.ndim != 1):
        return buffer.cast("B") if buffer.nbytes else b""
    return buffer


def join_small(parts: list[Buffer]) -> list[Buffer]:
    """The same bytes in fewer parts: small neighbours are joined, large parts stay."""
    joined: list[Buffer] = []
    begin = 0
    for end, part in enumerate(parts):
        if len(part) >= _WORTH_KEEPING:
            if begin < end:
                joined.append(parts[begin] if end - begin == 1 else b"".join(parts[begin:end]))
            joined.append(part)
            begin = end + 1
    if begin < len(parts):
        joined.append(b"".join(parts[begin:]))
    return joined
