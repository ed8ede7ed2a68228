"""Methods that only clients with a secret header may call."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest

from penstock.rpc.health import HealthServicer
from penstock.rpc.restrictions import restricted
from penstock.rpc.servicer import InferenceServicer
from penstock.settings import Feature, GrpcSettings, Restriction
from rpc.manual import ManualServer
from rpc.serving import connected

ADMIN = Restriction(frozenset({Feature.MODEL_REPOSITORY, Feature.INFERENCE}), "Admin-Key", "secret")
SENT = "triton-grpc-protocol-admin-key"
TEXT = "This protocol is restricted, expecting header 'triton-grpc-protocol-Admin-Key'"


@pytest.fixture
def settings(local: GrpcSettings) -> GrpcSettings:
    return replace(local, restrictions=(ADMIN,))


class Indexed(ManualServer):
    async def index(self, ready_only: bool = False) -> tuple[()]:
        return ()

    async def live(self) -> bool:
        return True


@pytest.mark.contract("GT-15", "SEC-03")
@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("admin-key", "secret"),),
        ((SENT, "wrong"),),
        ((SENT, "wrong"), (SENT, "secret")),
        ((SENT, "secret"), (SENT, "wrong")),
        ((SENT, "secret"), (SENT, "secret")),
    ],
)
async def test_calls_without_the_header_are_refused(
    settings: GrpcSettings, metadata: tuple[tuple[str, str], ...]
) -> None:
    async with connected(Indexed(), settings) as client:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.call("RepositoryIndex", metadata=metadata)
        assert (await client.call("ServerLive")).live
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert refused.value.details() == TEXT


@pytest.mark.contract("GT-15")
async def test_calls_with_the_header_are_answered(settings: GrpcSettings) -> None:
    metadata = [(SENT, "secret")]
    async with connected(Indexed(), settings) as client:
        assert not (await client.call("RepositoryIndex", metadata=metadata)).models


@pytest.mark.contract("GT-16")
async def test_a_restricted_stream_is_ended(settings: GrpcSettings) -> None:
    """The client only reads; one refused while it writes may hear of an error of its own."""
    async with connected(Indexed(), settings) as client:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.stream().read()
    assert refused.value.details() == TEXT


@pytest.mark.contract("GT-16")
def test_every_method_belongs_to_a_feature() -> None:
    """And all of them can be kept."""
    everything = Restriction(frozenset(Feature), "k", "v")
    server = ManualServer()
    for service in (InferenceServicer(server).service(), HealthServicer(server).service()):
        kept = restricted(service, [everything])
        pairs = zip(service.methods, kept.methods, strict=True)
        assert all(one.handler != other.handler for one, other in pairs)
        assert [m.handler for m in restricted(service, []).methods] == [
            m.handler for m in service.methods
        ]
