"""JSON bodies: small ones are decoded on the event loop, large ones in a process of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar

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


class Client(Protocol):
    """The client that a body is decoded for."""

    async def until(self, event: asyncio.Future[None]) -> None:
        """Wait for an event. Raises `ClientDisconnectError` if the client goes before."""


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
        return await self.decode(body, decode, call)

    async def decode(self, text: Buffer, decode: Callable[[Any], T], client: Client) -> T:
        """Parse `text` and return `decode` of the JSON.

        Raises `ClientDisconnectError` if the client goes while a large text is decoded, or waits.
        """
        return await self._decode(text, parse, decode, client)

    async def decode_tensors(self, text: Buffer, decode: Callable[[Any], T], client: Client) -> T:
        """As `decode`, of a text that `parse_tensors` parses."""
        return await self._decode(text, parse_tensors, decode, client)

    async def _decode(
        self,
        text: Buffer,
        parsing: Callable[[Text, int], Any],
        decode: Callable[[Any], T],
        client: Client,
    ) -> T:
        while not self.takes(text):
            if is_large(text):
                work = memoryview(text), parsing, self._values, decode
                return await _for(client, self._helper.run(len(text), _decoded, *work))
            await asyncio.sleep(0)  # many came at once
        return decode(parsing(bytes(text), self._values))


def _settle(event: asyncio.Future[None], _: object) -> None:
    if not event.done():
        event.set_result(None)


async def _for(client: Client, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns; cancelled if the client goes before, so that others have a turn."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(work)
    task.add_done_callback(partial(_settle, ended))
    try:
        await client.until(ended)
    except BaseException:
        task.cancel()
        raise
    return task.result()


def _decoded(
    text: Buffer, parsing: Callable[[Text, int], Any], values: int, decode: Callable[[Any], T]
) -> T:
    """Parse large JSON by `parsing` and return `decode` of it."""
    return decode(parsing(bytes(text), values))
