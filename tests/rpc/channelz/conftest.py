"""An endpoint with channelz."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from penstock.settings import GrpcSettings
from rpc.channelz.endpoint import Server, served


@pytest.fixture
async def server(local: GrpcSettings) -> AsyncIterator[Server]:
    async with served(local) as server:
        yield server
