"""Compression of responses in their order; large ones are compressed on a thread."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection

from penstock.http2.grpc import DEFLATE, GZIP, LARGE, Deflation
from penstock.http2.stream import Buffer
from penstock.rpc.context import Reply, serialized
from penstock.rpc.native.server_state import ServerState
from penstock.settings import CompressionLevel

LARGEST = 2**31 - 1
"""Bytes of the largest message that gRPC clients accept."""

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
    """The encoding that both the level and the client allow; empty if there is none."""
    return next((encoding for encoding in _PREFERRED[level] if encoding in accepted), b"")


class ResponseCompression:
    """Compresses messages of one call while `wanted`; those after a large one queue behind it.

    `send` is called with each queued message: its parts, and whether they are compressed.
    `drained` is called when the queue is empty, with the error if there was one.
    """

    def __init__(
        self,
        encoding: bytes,
        server: ServerState,
        send: Callable[[list[Buffer], bool], None],
        drained: Callable[[Exception | None], None],
    ) -> None:
        self.encoding = encoding
        self.wanted = True
        self._level = _LEVELS[server.compression]
        self._server = server
        self._send = send
        self._drained = drained
        self._deferred: deque[tuple[list[Buffer], bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._last: Callable[[], None] | None = None

    @property
    def busy(self) -> bool:
        """Whether messages are queued."""
        return self._task is not None

    def defer_large(self, message: Reply | None) -> Reply | None:
        """Queue a message that is large or behind others; else return its parts, to be sent now."""
        if message is None:
            return None
        parts: list[Buffer] = message if isinstance(message, list) else [serialized(message)]
        size = sum(map(len, parts))
        if size > LARGEST or not (self.busy or (self.wanted and size > LARGE)):
            return parts
        self._deferred.append((parts, self.wanted))
        if self._task is None:
            self._task = self._server.loop.create_task(self._send_deferred())
            self._server.tasks.add(self._task)
            self._task.add_done_callback(self._server.tasks.discard)
        return None

    def call_when_sent(self, last: Callable[[], None]) -> None:
        """Set the callback for when the queue is empty, in place of `drained`."""
        self._last = last

    def compress(self, parts: list[Buffer]) -> bytes:
        """The compressed form of a small message."""
        deflation = self._deflation(parts)
        while not deflation.step():
            pass
        return deflation.result()

    def cancel(self) -> None:
        """Discard the queue."""
        self._deferred.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _deflation(self, parts: list[Buffer]) -> Deflation:
        return Deflation(self.encoding, parts, self._level)

    async def _send_deferred(self) -> None:
        failure: Exception | None = None
        try:
            while self._deferred:
                parts, wanted = self._deferred.popleft()
                if wanted:
                    parts = [await self._server.workers.run(self._deflation(parts))]
                self._send(parts, wanted)
        except Exception as error:  # ends the call, as it does for a small message
            failure = error
        self._task = None
        if self._last is None or failure is not None:
            self._drained(failure)
        else:
            self._last()
