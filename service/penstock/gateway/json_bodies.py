"""JSON bodies: small ones are decoded on the event loop, large ones on a thread of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.core.buffer import Buffer
from penstock.core.turns import SWITCH_INTERVAL, LoopTurn
from penstock.gateway.body import read_body
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.json.fields import ABSENT
from penstock.gateway.json.long_lists import discard
from penstock.gateway.json.slices import MOST_VALUES, Text
from penstock.gateway.json.text import is_large, parse, parse_tensors, skim
from penstock.gateway.json.thread import JsonThread, give_turn

T = TypeVar("T")

_SLICE = 1 << 20
"""Bytes that are copied at a time."""

_FREE = 1 << 12
"""Bytes of a text that is decoded at once whatever comes beside it."""

_PER_TURN = 1 << 16
"""Bytes of longer ones that are decoded in one turn of the event loop: some milliseconds."""


class JsonBodies:
    """Reads and decodes bodies of up to `limit` bytes, and `values` values where they are large."""

    def __init__(self, limit: int, thread: JsonThread, values: int = MOST_VALUES) -> None:
        self.limit = limit
        self._decoder = thread
        self._values = values
        self._turn = LoopTurn(_PER_TURN)

    def takes(self, text: Buffer) -> bool:
        """Whether to decode a text here and now: a small one, unless many come at once."""
        size = len(text)
        if size <= _FREE:
            return True
        if self._turn.over or is_large(text):
            return False
        self._turn.spend(size)
        return True

    async def read(
        self, call: HttpCall, decode: Callable[[Any], T], *, optional: bool = False
    ) -> T:
        """Read a body and return `decode` of its JSON; of `ABSENT` if an `optional` one is empty.

        The result must not hold lists or objects of the JSON, which are emptied afterwards.
        """
        body = await read_body(call, self.limit)
        if optional and not body:
            return decode(ABSENT)
        return await self.decode(body, decode)

    async def decode(self, text: Buffer, decode: Callable[[Any], T]) -> T:
        """Parse `text` and return `decode` of the JSON."""
        if self.takes(text):
            return decode(parse(bytes(text)))
        return await self._decode_large(text, parse, decode)

    async def skim(self, text: Buffer, decode: Callable[[Any], T]) -> T:
        """As `decode`, where long strings and lists are not looked at: they may be cut."""
        if self.takes(text):
            return decode(parse(bytes(text)))
        return await self._decode_large(text, skim, decode)

    async def decode_tensors(self, text: Buffer, decode: Callable[[Any], T]) -> T:
        """As `decode`, of a text that is not taken, which `parse_tensors` parses."""
        return await self._decode_large(text, parse_tensors, decode)

    async def _decode_large(
        self, text: Buffer, parsing: Callable[[Text, int], Any], decode: Callable[[Any], T]
    ) -> T:
        with SWITCH_INTERVAL.short():  # what is decoded in one piece takes some milliseconds
            return await self._decoder.run(len(text), _decoded, text, parsing, self._values, decode)


def _decoded(
    text: Buffer, parsing: Callable[[Text, int], Any], values: int, decode: Callable[[Any], T]
) -> T:
    """Parse large JSON by `parsing` and return `decode` of it; the JSON is freed in slices."""
    json = parsing(_as_text(text), values)
    try:
        return decode(json)
    finally:
        discard(json)


def _as_text(data: Buffer) -> Text:
    """The bytes of a view, copied in slices, between which other threads run."""
    if not isinstance(data, memoryview):
        return data
    text = bytearray()
    for start in range(0, len(data), _SLICE):
        text += data[start : start + _SLICE]
        give_turn()
    return text
