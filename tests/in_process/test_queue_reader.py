"""`QueueReader`: responses go to the queue of a caller, and to who iterates."""

from __future__ import annotations

import asyncio

import pytest

from penstock.in_process.response import InferenceResponse, QueueReader


class _Failing:
    """A reader of responses that cannot be made."""

    async def next(self) -> InferenceResponse | None:
        await asyncio.sleep(0)
        raise ValueError("an odd tensor")

    def cancel(self) -> None:
        raise AssertionError


async def test_a_response_that_cannot_be_made_ends_the_wait_for_it() -> None:
    put: list[InferenceResponse] = []
    reader = QueueReader(_Failing(), put.append)
    with pytest.raises(ValueError, match="an odd tensor"):
        await reader.next()
    assert await reader.next() is None
    assert put == []
