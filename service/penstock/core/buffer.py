"""The types of memory buffers in which tensors and messages travel."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview


def octets(buffer: Buffer) -> Buffer:
    """A view of the buffer as single bytes, so that its `len` is its size in bytes."""
    if isinstance(buffer, memoryview) and (buffer.format != "B" or buffer.ndim != 1):
        return buffer.cast("B") if buffer.nbytes else b""
    return buffer
