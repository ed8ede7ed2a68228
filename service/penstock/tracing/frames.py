"""Frames between the server and the exporter process: four bytes of length, then the payload."""

from __future__ import annotations

from typing import NamedTuple


class Report(NamedTuple):
    """What became of some spans: how many the collector has taken, how many were lost, and why."""

    exported: int
    failed: int
    reason: str = ""


def frame(payload: bytes) -> bytes:
    """The frame of a payload."""
    return len(payload).to_bytes(4, "little") + payload


class Frames:
    """Takes bytes as they come, and gives the payloads that are complete."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> list[bytes]:
        """The payloads that are complete with `data`."""
        self._data += data
        found: list[bytes] = []
        at = 0
        while (end := self._end(at)) <= len(self._data):
            found.append(bytes(self._data[at + 4 : end]))
            at = end
        del self._data[:at]
        return found

    def _end(self, at: int) -> int:
        """Where the frame that begins at `at` ends, at least behind its length."""
        return at + 4 + int.from_bytes(self._data[at : at + 4], "little")
