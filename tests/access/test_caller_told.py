"""The caller that a policy knows stands in the access log and in traces, and nowhere by its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from access.models import OPEN, guarded
from access.policies import ALICE, bearer
from gateway.serving import LOCAL
from penstock.core.access import Access
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.timeline import Trace
from penstock.gateway.app import open_gateway
from penstock.gateway.connections.open_connections import ConnectionRules
from penstock.rpc.server import open_grpc
from penstock.settings import GrpcSettings
from penstock.settings.tracing import TraceSettings
from penstock.tracing.sampling import Sampled, Sampling
from penstock.tracing.tracer import Tracer
from rpc.serving import Client, channel_to, infer_request

httpx = pytest.importorskip("httpx")

REQUEST = infer_request(OPEN, IN=np.ones(1, np.float32))
SAMPLING = Sampling(TraceSettings())
BODY = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]}


class Kept:
    """An access log and a place for traces that keep what they get; every request is traced."""

    active = True

    def __init__(self) -> None:
        self.accesses: list[Access] = []
        self.traces: list[Trace] = []

    def add(self, access: Access) -> None:
        self.accesses.append(access)

    def submit(self, trace: Trace) -> None:
        self.traces.append(trace)

    def sample(self, *_: Any) -> Sampled:
        return Sampled(frozenset({"TIMESTAMPS"}), SAMPLING)

    @property
    def callers(self) -> tuple[list[str], list[Any]]:
        assert ALICE not in str(self.accesses) + str([one.root.facts for one in self.traces])
        return (
            [access.caller for access in self.accesses],
            [trace.root.facts.get("enduser.id") for trace in self.traces],
        )


async def asked(kept: Kept, local: GrpcSettings, server: Any, headers: Mapping[str, str]) -> None:
    """One call of each kind."""
    metadata = [*headers.items()]
    async with (
        open_grpc(server, local, ExitDeadline(2), access=kept) as port,
        channel_to(port) as channel,
    ):
        client = Client(channel)
        await client.call("ModelInfer", REQUEST, metadata=metadata)
        await client.conversation([REQUEST], metadata=metadata)
    async with (
        open_gateway(server, LOCAL, ExitDeadline(2), ConnectionRules(access=kept)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers) as http,
    ):
        answer = await http.post(f"/v2/models/{OPEN}/infer", json=BODY)
        assert answer.status_code == 200


async def test_the_caller_is_told(local: GrpcSettings, repository: Any) -> None:
    kept = Kept()
    tracer = Tracer(kept, [kept])
    async with guarded(repository, tracer=tracer) as server:
        await asked(kept, local, server, bearer(ALICE))
    assert kept.callers == (["alice"] * 3, ["alice"] * 3)
