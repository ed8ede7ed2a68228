"""The responses of a call that compresses them: in their order, large ones on a thread."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from penstock.http2.compression import DEFLATE, GZIP, LARGE, Deflation
from penstock.http2.stream import Buffer
from penstock.rpc.context import Reply, serialized
from penstock.settings import CompressionLevel

if TYPE_CHECKING:
    from penstock.rpc.native.server_state import Endpoint

LARGEST = 2**31 - 1
"""No client of gRPC takes a message that is larger."""

_PREFERRED = {
    CompressionLevel.NONE: (GZIP, DEFLATE),
    CompressionLevel.LOW: (DEFLATE, GZIP),
    CompressionLevel.MEDIUM: (GZIP, DEFLATE),
    CompressionLevel.HIGH: (GZIP, DEFLATE),
}
_LEVELS = {
    CompressionLevel.NONE: 6,
    CompressionLevel.LOW: 6,
    CompressionLevel.MEDIUM: 6,
    CompressionLevel.HIGH: 9,
}


def choose_encoding(level: CompressionLevel, accepted: Collection[bytes]) -> bytes:
    """The compression that suits server and client; empty if there is none."""
    return next((encoding for encoding in _PREFERRED[level] if encoding in accepted), b"")


class Packing:
    """Compresses messages of `encoding` while `wanted`; what follows a large one waits for it.

    `send` gets what was kept: its bytes, and whether they are compressed. `drained` is called when
    nothing is kept any more, with the error if there was one.
    """

    def __init__(
        self,
        encoding: bytes,
        endpoint: Endpoint,
        send: Callable[[list[Buffer], bool], None],
        drained: Callable[[Exception | None], None],
    ) -> None:
        self.encoding = encoding
        self.wanted = True
        self._level = _LEVELS[endpoint.compression]
        self._endpoint = endpoint
        self._send = send
        self._drained = drained
        self._kept: deque[tuple[list[Buffer], bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._last: Callable[[], None] | None = None

    @property
    def busy(self) -> bool:
        """Whether there are messages that have not been sent yet."""
        return self._task is not None

    def keep(self, message: Reply | None) -> Reply | None:
        """What is to be sent now: the message, unless it is too large for that, or others wait."""
        if message is None:
            return None
        parts: list[Buffer] = message if isinstance(message, list) else [serialized(message)]
        size = sum(map(len, parts))
        if size > LARGEST or not (self.busy or (self.wanted and size > LARGE)):
            return parts
        self._kept.append((parts, self.wanted))
        if self._task is None:
            self._task = self._endpoint.loop.create_task(self._send_kept())
            self._endpoint.tasks.add(self._task)
            self._task.add_done_callback(self._endpoint.tasks.discard)
        return None

    def then(self, last: Callable[[], None]) -> None:
        """What to do when all is sent."""
        self._last = last

    def pack(self, parts: list[Buffer]) -> bytes:
        """The compressed form of a small message."""
        deflation = self._deflation(parts)
        while not deflation.step():
            pass
        return deflation.result()

    def cancel(self) -> None:
        """Nobody wants what has not been sent."""
        self._kept.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _deflation(self, parts: list[Buffer]) -> Deflation:
        return Deflation(self.encoding, parts, self._level)

    async def _send_kept(self) -> None:
        failure: Exception | None = None
        try:
            while self._kept:
                parts, wanted = self._kept.popleft()
                if wanted:
                    parts = [await self._endpoint.workers.run(self._deflation(parts))]
                self._send(parts, wanted)
        except Exception as error:  # which ends the call, as it would at once
            failure = error
        self._task = None
        if self._last is None or failure is not None:
            self._drained(failure)
        else:
            self._last()
