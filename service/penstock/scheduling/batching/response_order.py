"""Response ordering: responses leave in the order of their requests (contract D-08)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from penstock.inflight.inference import Inference


class ResponseOrder:
    """Holds responses back until their request is the oldest that was executed."""

    def __init__(self) -> None:
        self._queue: deque[Inference] = deque()
        self._loop = asyncio.get_running_loop()

    def add(self, batch: Iterable[Inference]) -> None:
        """Append the requests of a batch, in this order."""
        for inference in batch:
            if self._queue:
                inference.stream.hold_back()
            inference.on_end = self._ended
            self._queue.append(inference)

    def append(self, inference: Inference) -> None:
        """Append a request that is still to be scheduled, by whoever, or is answered already."""
        if self._queue:
            inference.stream.hold_back()
        inference.on_left = self._ended
        self._queue.append(inference)

    def _ended(self) -> None:
        # Not at once: the reader of the stream that just ended is woken first.
        self._loop.call_soon(self._advance)

    def _advance(self) -> None:
        while self._queue and self._queue[0].stream.ended:
            self._queue.popleft()
            if self._queue:
                self._queue[0].stream.release_held()
