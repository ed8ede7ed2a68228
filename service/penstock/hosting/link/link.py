"""The link as an asyncio protocol: one pass per read, one write per loop turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from penstock.core.buffer import Buffer
from penstock.hosting.link.frames import Decode, FrameReader, encode, encode_answer, joined

MOST_ITEMS = 4096
"""Items of a list that share a frame."""

Handler = Callable[[Any, memoryview], None]
"""Is called with the header and the payload of a message."""

Unsent = Callable[[int, Any, ValueError], None]
"""Is called with the kind and the header of a message that cannot be sent, and the reason."""


class Link(asyncio.Protocol):
    """One end of the socket. Each message is passed to the handler of its kind.

    Frames that are queued with `hold` are not written while `busy()`, unless another is sent.
    `reads` counts how often something was received. The server's end has `decoders` of what a model
    process sends, which it does not trust: `on_broken` is called with what is wrong with it, be it
    found by a decoder or by a handler, and nothing is read any more. A model process's end calls
    `on_unsent` for each message, or item of a list, that is too large for the server.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        on_lost: Callable[[], None],
        busy: Callable[[], bool] = lambda: False,
        decoders: Mapping[int, Decode] | None = None,
        on_broken: Callable[[Exception], None] | None = None,
        on_unsent: Unsent | None = None,
    ) -> None:
        self._handlers = handlers
        self._on_lost = on_lost
        self._busy = busy
        self._transport: asyncio.WriteTransport | None = None
        self._on_broken = on_broken
        self._on_unsent = on_unsent
        self._encode = encode_answer if decoders is None else encode
        self._frames = FrameReader(decoders)
        self._out: list[Buffer] = []
        self._kind = 0
        self._items: list[Any] = []
        self._payload: list[Buffer] = []
        self._payload_ends: list[int] = []
        self._planned = self._urgent = False
        self._loop = asyncio.get_running_loop()
        self._broken = False
        self.reads = 0

    def send(self, kind: int, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Queue a frame, written with all others of this loop turn; dropped after the end."""
        if self._transport is None:
            return
        self._urgent = True
        self._plan_flush()
        self._append(kind, header, payload)

    def hold(self, kind: int, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Queue a frame that must not wake a busy reader."""
        if self._transport is None:
            return
        self._plan_flush()
        self._append(kind, header, payload)

    def release(self) -> None:
        """Write the held frames in this loop turn: the reader is about to need them."""
        if self._out:
            self._urgent = True
            self._plan_flush()

    def _append(self, kind: int, header: Any, payload: Sequence[Buffer]) -> None:
        if self._items:
            self._end_list()
        self._out += self._encoded(kind, header, header, payload)

    def add(self, kind: int, item: Any, payload: Sequence[Buffer] = ()) -> None:
        """Queue an item of a list; items of one kind that follow each other share a frame."""
        if self._transport is None:
            return
        self._urgent = True
        self._plan_flush()
        if self._items and kind != self._kind:
            self._end_list()
        self._kind = kind
        self._items.append(item)
        self._payload += payload
        self._payload_ends.append(len(self._payload))
        if len(self._items) == MOST_ITEMS:
            self._end_list()

    def _plan_flush(self) -> None:
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._flush_due)

    def _end_list(self) -> None:
        kind, items, payload, ends = self._kind, self._items, self._payload, self._payload_ends
        self._items, self._payload, self._payload_ends = [], [], []
        try:
            self._out += self._encode(kind, items, payload)
        except ValueError:  # each on its own, and those that are too large not at all
            begin = 0
            for item, end in zip(items, ends, strict=True):
                self._out += self._encoded(kind, [item], item, payload[begin:end])
                begin = end

    def _encoded(
        self, kind: int, header: Any, subject: Any, payload: Sequence[Buffer]
    ) -> list[Buffer]:
        """A frame; none if it cannot be sent, of which `on_unsent` is told by its subject."""
        try:
            return self._encode(kind, header, payload)
        except ValueError as error:
            if self._on_unsent is None:
                raise
            self._on_unsent(kind, subject, error)
            return []

    def _flush_due(self) -> None:
        self._planned = False
        if self._urgent or not self._busy():
            self.flush()

    def flush(self) -> None:
        """Write the queued frames."""
        self._urgent = False
        if self._items:
            self._end_list()
        out, self._out = self._out, []
        if out and self._transport is not None:
            self._transport.writelines(out if len(out) == 1 else joined(out))

    def close(self) -> None:
        """Close the socket after the queued frames were written."""
        if self._transport is not None:
            self.flush()
            self._transport.close()

    # -- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        if self._broken:
            return
        try:
            for kind, header, payload in self._frames.feed(data):
                self._handlers[kind](header, payload)
        except Exception as error:  # a peer may send anything
            if self._on_broken is None:
                raise
            self._broken = True
            self._on_broken(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._out.clear()
        self._items.clear()
        self._payload.clear()
        self._payload_ends.clear()
        self._on_lost()
