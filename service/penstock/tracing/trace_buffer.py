"""`TraceBuffer`: traces that wait for the exporter process."""

from __future__ import annotations

MOST_BYTES = 16 << 20


class TraceBuffer:
    """Packed traces in order, up to a number of them and of bytes. Knows no clock or socket."""

    def __init__(self, most: int, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._traces: list[bytes] = []
        self._bytes = 0
        self._spans = 0

    def __len__(self) -> int:
        return len(self._traces)

    def add(self, packed: bytes, spans: int) -> bool:
        """Add a trace of so many spans; `False` if there is no room for it."""
        if len(self._traces) >= self._most or self._bytes + len(packed) > self._most_bytes:
            return False
        self._traces.append(packed)
        self._bytes += len(packed)
        self._spans += spans
        return True

    def take(self) -> tuple[bytes, int]:
        """All traces joined, and the number of their spans; the buffer is empty then."""
        data, spans = b"".join(self._traces), self._spans
        self._traces.clear()
        self._bytes = self._spans = 0
        return data, spans
