"""The transport under test, some methods, and a client of theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from penstock.core.exit_deadline import ExitDeadline
from penstock.rpc.server import OpenTransport, transport
from penstock.settings import GrpcSettings
from rpc.serving import Client, channel_to
from rpc.transports.handlers import Handlers


@pytest.fixture
def serve(local: GrpcSettings) -> OpenTransport:
    """The function that opens the transport under test."""
    return transport(local.transport)


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@pytest_asyncio.fixture
async def client(
    local: GrpcSettings, serve: OpenTransport, handlers: Handlers
) -> AsyncIterator[Client]:
    async with (
        serve([handlers.service()], local, ExitDeadline(1.0)) as port,
        channel_to(port) as channel,
    ):
        yield Client(channel)
