"""`ControlBodies`: the small bodies of calls that control the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from penstock.gateway.body import RequestBody
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.json.fields import ABSENT
from penstock.gateway.json.helper import JsonHelper
from penstock.gateway.json.text import parse
from penstock.gateway.json_bodies import JsonBodies

T = TypeVar("T")

LARGEST: Final = 1 << 16
"""Bytes of the longest: what they say is short, and is decoded on the event loop."""


class ControlBodies(JsonBodies):
    """Reads and decodes bodies of up to `LARGEST` bytes; what is decoded may hold the JSON."""

    def __init__(self, helper: JsonHelper) -> None:
        super().__init__(LARGEST, helper)

    async def read(
        self, call: HttpCall, decode: Callable[[Any], T], *, optional: bool = False
    ) -> T:
        """As `JsonBodies.read`, without a helper."""
        body = RequestBody(call, largest=LARGEST)
        body.check_size(body.declared or 0)
        text = await body.read_until(LARGEST + 1)
        body.check_size(len(text))
        return decode(ABSENT if optional and not text else parse(bytes(text)))
