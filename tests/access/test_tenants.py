"""Tenants are who the policy says."""

from __future__ import annotations

import asyncio

import numpy as np

from access.policies import ADMIN, ALICE, bearer, gate
from gateway.serving import FakeServer
from gateway.serving import connected as http_connected
from penstock.access.current import current_caller
from penstock.core.request import Sender
from penstock.scheduling.tokens.tenants import Tenants
from penstock.server.seen_models import seen
from penstock.settings import GrpcSettings
from rpc.manual import ManualServer
from rpc.serving import connected, infer_request

SPOOFED = {"x-gateway-inference-fairness-id": "other", "x-team": "other", "api-key": ALICE}
TENANTS = Tenants(header="x-team", trusts_id=True, caller=current_caller)
ONE = np.ones(1, np.float32)


async def test_a_stream_is_of_its_caller(local: GrpcSettings) -> None:
    server = ManualServer()
    server.access, server.tenants = gate(), TENANTS
    metadata = list({**SPOOFED, **bearer(ADMIN)}.items())
    async with connected(seen(server), local) as client:
        stream = client.stream(metadata=metadata)
        await stream.write(infer_request("once", id="1", IN=ONE))
        await stream.write(infer_request("strict", id="2", IN=ONE))
        await stream.done_writing()
        async with asyncio.timeout(20):
            # They are held: reading would wait for answers.
            while not server.requests:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)
        stream.cancel()
    assert server.requests[0].scope.sender == Sender("admin", 0)


async def test_a_request_over_http_is_of_its_caller() -> None:
    server = FakeServer()
    server.access, server.tenants = gate(), TENANTS
    body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]}
    async with http_connected(seen(server)) as client:
        await client.post(
            "/v2/models/numbers/infer", json=body, headers={**SPOOFED, **bearer(ADMIN)}
        )
    assert [each.scope.sender for each in server.requests] == [Sender("admin", 0)]


def test_nobody_s_name_is_left_to_headers() -> None:
    assert TENANTS.sender(SPOOFED).tenant == "other"
    assert Tenants(caller=current_caller).sender(bearer(ADMIN)).tenant == "anonymous"
