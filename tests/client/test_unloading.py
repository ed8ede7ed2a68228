"""What a client asks for when it unloads an ensemble, over both protocols."""

from __future__ import annotations

from gateway.serving import LOCAL, FakeServer
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway
from penstock.rpc.server import open_grpc
from penstock.settings import GrpcSettings
from penstock_client.client import Client


async def test_parts_of_an_ensemble_are_left_unless_the_caller_names_them() -> None:
    server, grace = FakeServer(), ExitDeadline(1)
    async with (
        open_gateway(server, LOCAL, grace) as http,
        open_grpc(server, GrpcSettings(address="127.0.0.1", port=0), grace) as grpc,
    ):
        for address in (f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc}"):
            async with Client(address, timeout=20.0) as client:
                await client.unload("whole")
                await client.unload("whole", dependents=True)
    assert server.unloaded == [("whole", False), ("whole", True)] * 2
