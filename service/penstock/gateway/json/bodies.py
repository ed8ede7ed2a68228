"""JSON bodies: small ones are decoded on the event loop, large ones on a thread of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import Request

from penstock.gateway.body import read_body
from penstock.gateway.json.fields import ABSENT
from penstock.gateway.json.slices import Text, discard
from penstock.gateway.json.text import LARGE, parse
from penstock.gateway.json.thread import JsonThread

T = TypeVar("T")


class JsonBodies:
    """Reads and decodes bodies of up to `limit` bytes."""

    def __init__(self, limit: int, thread: JsonThread) -> None:
        self.limit = limit
        self.thread = thread

    async def read(
        self, request: Request, decode: Callable[[Any], T], *, optional: bool = False
    ) -> T:
        """Read a body and return `decode` of its JSON; of `ABSENT` if an `optional` one is empty.

        The result must not hold lists or objects of the JSON, which are emptied afterwards.
        """
        body = await read_body(request, self.limit)
        if optional and not body:
            return decode(ABSENT)
        return await self.decode(body, decode)

    async def decode(self, text: Text, decode: Callable[[Any], T]) -> T:
        """Parse `text` and return `decode` of the JSON."""
        if len(text) < LARGE:
            return decode(parse(text))
        return await self.thread.run(decoded, text, decode)


def decoded(text: Text, decode: Callable[[Any], T]) -> T:
    """Parse large JSON and return `decode` of it; the JSON is freed in slices."""
    json = parse(text)
    try:
        return decode(json)
    finally:
        discard(json)
