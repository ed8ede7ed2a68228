"""Responses in the order of their requests, whichever instance is done first (contract D-08)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from penstock.inflight.inference import Inference


class ResponseOrder:
    """Holds back what is ahead of its turn: only the oldest request taken may answer."""

    def __init__(self) -> None:
        self._line: deque[Inference] = deque()
        self._loop = asyncio.get_running_loop()

    def add(self, batch: Iterable[Inference]) -> None:
        """These requests come next, in this order."""
        for inference in batch:
            if self._line:
                inference.stream.hold()
            inference.on_end = self._ended
            self._line.append(inference)

    def _ended(self) -> None:
        # Not at once: whoever reads the stream that just ended is to be woken first.
        self._loop.call_soon(self._advance)

    def _advance(self) -> None:
        while self._line and self._line[0].stream.ended:
            self._line.popleft()
            if self._line:
                self._line[0].stream.release()
