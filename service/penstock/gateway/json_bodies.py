"""JSON bodies: small ones are decoded on the event loop, large ones in a process of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.core.buffer import Buffer
from penstock.core.turns import LoopTurn
from penstock.gateway.body import read_body
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.json.fields import ABSENT
from penstock.gateway.json.helper import JsonHelper
from penstock.gateway.json.scan import MOST_VALUES, Text
from penstock.gateway.json.text import is_large, parse, parse_tensors

T = TypeVar("T")

_FREE = 1 << 12
"""Bytes of a text that is decoded at once whatever comes beside it."""

_PER_TURN = 1 << 16
"""Bytes of longer ones that are decoded in one turn of the event loop: some milliseconds."""


class JsonBodies:
    """Reads and decodes bodies of up to `limit` bytes, and `values` values where they are large."""

    def __init__(self, limit: int, helper: JsonHelper, values: int = MOST_VALUES) -> None:
        self.limit = limit
        self._helper = helper
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

        Of a large one, `decode` runs elsewhere: it and its result are pickled.
        """
        body = await read_body(call, self.limit)
        if optional and not body:
            return decode(ABSENT)
        return await self.decode(body, decode)

    async def decode(self, text: Buffer, decode: Callable[[Any], T]) -> T:
        """Parse `text` and return `decode` of the JSON."""
        return await self._decode(text, parse, decode)

    async def decode_tensors(self, text: Buffer, decode: Callable[[Any], T]) -> T:
        """As `decode`, of a text that `parse_tensors` parses."""
        return await self._decode(text, parse_tensors, decode)

    async def _decode(
        self, text: Buffer, parsing: Callable[[Text, int], Any], decode: Callable[[Any], T]
    ) -> T:
        while not self.takes(text):
            if is_large(text):
                work = memoryview(text), parsing, self._values, decode
                return await self._helper.run(len(text), _decoded, *work)
            await asyncio.sleep(0)  # many came at once
        return decode(parsing(bytes(text), self._values))


def _decoded(
    text: Buffer, parsing: Callable[[Text, int], Any], values: int, decode: Callable[[Any], T]
) -> T:
    """Parse large JSON by `parsing` and return `decode` of it."""
    return decode(parsing(bytes(text), values))
