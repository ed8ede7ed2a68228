"""Memory for large bodies that model processes map, so that binary tensors are not copied."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.core.region import RegionSlice
from penstock.http1.request_head import RequestHead
from penstock.shared_memory.message_memory import WORTH, MessageMemory

JSON_LENGTH = "inference-header-content-length"

_LEAST = WORTH // 2
"""Bytes of the tensors from which it is looked for where they lie."""

Place = Callable[[int, memoryview], RegionSlice | None]
"""The location of a tensor, given where it begins behind the JSON; `None` if it needs a copy."""


def nowhere(_: int, __: memoryview) -> RegionSlice | None:
    """The place of tensors in memory of this process alone."""
    return None


class BodyMemory:
    """Reserves the memory of inference requests with binary tensors."""

    def __init__(self) -> None:
        self._memory: MessageMemory | None = None

    def reserve(self, head: RequestHead) -> memoryview | None:
        """Memory for the body of a request, of which nothing has arrived; mostly `None`."""
        if not head.path.endswith("/infer"):
            return None
        return self.behind_json(head, head.headers.get(JSON_LENGTH, ""))

    def behind_json(self, head: RequestHead, text: str) -> memoryview | None:
        """The same for a body with binary tensors behind JSON, whose length is what `text` says."""
        size = head.content_length
        if size is None or size < WORTH:
            return None
        if not text.isdecimal() or len(text) > 9 or "content-encoding" in head.headers:
            return None
        memory = self._memory
        if memory is None:
            memory = self._memory = MessageMemory()
        return memory.reserve(size, int(text))

    def places(self, rest: memoryview, json_length: int) -> Place:
        """The places of tensors in the part of a body behind its JSON."""
        if self._memory is None or len(rest) < _LEAST:
            return nowhere
        return partial(self._place, rest, json_length)

    def _place(
        self, rest: memoryview, json_length: int, begin: int, tensor: memoryview
    ) -> RegionSlice | None:
        assert self._memory is not None
        return self._memory.place(rest, json_length + begin, tensor)
