"""Memory for large bodies that model processes map, so that binary tensors are not copied."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from urllib.parse import unquote

from penstock.core.region import RegionSlice
from penstock.http1.requests import RequestHead
from penstock.shared_memory.message_memory import WORTH
from penstock.shared_memory.message_pools import MessagePools

_MODELS = "/v2/models/"

JSON_LENGTH = "inference-header-content-length"

_LEAST = WORTH // 2
"""Bytes of the tensors from which it is looked for where they lie."""

Place = Callable[[int, memoryview], RegionSlice | None]
"""The location of a tensor, given where it begins behind the JSON; `None` if it needs a copy."""


def nowhere(_: int, __: memoryview) -> RegionSlice | None:
    """The place of tensors in memory of this process alone."""
    return None


class BodyMemory:
    """Reserves the memory of inference requests with binary tensors, in the pools of models."""

    def __init__(self, pools: MessagePools) -> None:
        self._pools = pools

    def reserve(self, head: RequestHead) -> memoryview | None:
        """Memory for the body of a request, of which nothing has arrived; mostly `None`."""
        if not head.path.endswith("/infer"):
            return None
        return self.behind_json(head, head.headers.get(JSON_LENGTH, ""), model_of(head.path))

    def behind_json(self, head: RequestHead, text: str, model: str) -> memoryview | None:
        """The same for a body with binary tensors behind JSON, whose length is what `text` says."""
        size = head.content_length
        if size is None or size < WORTH:
            return None
        if not text.isdecimal() or len(text) > 9 or "content-encoding" in head.headers:
            return None
        return self._pools.reserve(model, size, int(text))

    def places(self, rest: memoryview, json_length: int) -> Place:
        """The places of tensors in the part of a body behind its JSON."""
        if len(rest) < _LEAST:
            return nowhere
        return partial(self._place, rest, json_length)

    def _place(
        self, rest: memoryview, json_length: int, begin: int, tensor: memoryview
    ) -> RegionSlice | None:
        return self._pools.place(rest, json_length + begin, tensor)


def model_of(path: str) -> str:
    """The name of the model in the path of a call to it; empty for other paths."""
    if not path.startswith(_MODELS):
        return ""
    return unquote(path[len(_MODELS) :].partition("/")[0])
