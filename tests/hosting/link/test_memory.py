"""What becomes of blocks whose views outlive the link."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from penstock.hosting.link.arena import Arena, create
from penstock.hosting.link.memory import SharedMemory


def test_view_that_outlives_the_event_loop_ends_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those of requests do that are in flight when a model process ends."""
    raised: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", raised.append)
    into = create(1 << 20)
    peer = Arena(into)
    memory = SharedMemory(out=create(1 << 20), into=os.dup(into))
    os.close(into)
    sent: list[object] = []

    async def opened() -> memoryview:
        memory.open(sent.append)
        offset = peer.put(b"text")
        assert offset is not None
        assert memory._view is not None
        return memory._view.view(offset, 4)

    view = asyncio.run(opened())
    assert bytes(view) == b"text"
    del view
    assert sent == []
    assert raised == []
