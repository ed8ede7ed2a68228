"""Server-sent events in what comes of a stream, wherever it is cut."""

from __future__ import annotations


class EventStream:
    """A stream of events; each of them is the lines between two blank ones."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[bytes]:
        """The events that end in what comes now."""
        if self._rest:
            data = self._rest + data
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        *events, self._rest = data.split(b"\n\n")
        return events


def data_of(event: bytes) -> bytes:
    """The data of an event; empty for what is no more than a comment."""
    lines = [line[5:] for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)
