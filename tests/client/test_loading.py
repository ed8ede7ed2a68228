"""How long a client waits for a load, over both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from gateway.serving import LOCAL, FakeServer
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway
from penstock.rpc.server import open_grpc
from penstock.settings import GrpcSettings
from penstock_client.client import Client, DeadlineExceededError


class _NeverLoads(FakeServer):
    async def load(
        self, name: str, parameters: Mapping[str, str | bytes], *, trusted: bool = False
    ) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("usual", "given"), [(0.05, None), (None, 0.05), (20.0, 0.05)], ids=["client", "call", "both"]
)
async def test_a_load_has_its_own_limit_or_that_of_the_client(
    usual: float | None, given: float | None
) -> None:
    server, grace = _NeverLoads(), ExitDeadline(1)
    async with (
        open_gateway(server, LOCAL, grace) as http,
        open_grpc(server, GrpcSettings(address="127.0.0.1", port=0), grace) as grpc,
    ):
        for address in (f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc}"):
            async with Client(address, timeout=usual) as client, asyncio.timeout(15):
                with pytest.raises(DeadlineExceededError):
                    await client.load("m", timeout=given)
