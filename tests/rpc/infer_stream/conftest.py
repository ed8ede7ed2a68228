"""Conversations over both kinds of transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from rpc.infer_stream.talk import Talk


@pytest.fixture(params=[False, True], ids=["by_task", "at_once"])
def at_once(request: pytest.FixtureRequest) -> bool:
    """Whether the transport takes messages without a task."""
    return bool(request.param)


@pytest_asyncio.fixture
async def talk(at_once: bool) -> AsyncIterator[Talk]:
    talk = Talk(at_once=at_once)
    yield talk
    talk.task.cancel()
    await asyncio.wait([talk.task])


@pytest_asyncio.fixture
async def strict_talk(at_once: bool) -> AsyncIterator[Talk]:
    """A conversation whose client wants the first error as the status of the call."""
    talk = Talk(at_once=at_once, triton_grpc_error="true")
    yield talk
    talk.task.cancel()
    await asyncio.wait([talk.task])
