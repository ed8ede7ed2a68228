"""Everything here runs on the loop that the server runs on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest_asyncio

from harness.checked_loop import CheckedLoop
from hosting.puppets import Puppets


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": CheckedLoop}


@pytest_asyncio.fixture
async def puppets() -> AsyncIterator[Puppets]:
    """Starts model processes; those that are left at the end are stopped."""
    async with Puppets() as started:
        yield started
