"""Calls that answer until their clients go: only as long as these are let in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from access.models import OPEN, guarded
from access.policies import ADMIN, ALICE, POLICY, bearer, gate
from penstock.access.policy_file import parse_policy
from penstock.core.exit_deadline import ExitDeadline
from penstock.protocol import health_pb2, orca_pb2
from penstock.protocol import releases_pb2 as pb
from penstock.protocol.health_pb2_grpc import HealthStub
from penstock.protocol.orca_pb2_grpc import OpenRcaServiceStub
from penstock.protocol.releases_pb2_grpc import ReleasesStub
from penstock.rpc.server import open_grpc
from penstock.settings import GrpcSettings
from rpc.serving import channel_to

CALLER: Any = tuple(bearer(ALICE).items())
OF_OTHERS = POLICY.replace('"group:res*"', '"admin"').replace('"anyone"', '"bob"')
OF_OTHER_MODELS = POLICY.replace('"open*"', '"other*"')


def watches(channel: grpc.aio.Channel) -> dict[str, Any]:
    """A call of each method that answers without end."""
    health: Any = HealthStub(channel)
    orca: Any = OpenRcaServiceStub(channel)
    releases: Any = ReleasesStub(channel)
    return {
        "Watch": health.Watch(health_pb2.HealthCheckRequest(service=OPEN), metadata=CALLER),
        "StreamCoreMetrics": orca.StreamCoreMetrics(
            orca_pb2.OrcaLoadReportRequest(), metadata=CALLER
        ),
        "AliasWatch": releases.AliasWatch(pb.AliasWatchRequest(), metadata=CALLER),
    }


async def end(call: Any) -> str:
    """The code with which a call ends, whatever it tells before."""
    try:
        while await call.read():
            pass
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "OK"


async def test_they_end_when_their_caller_is_let_in_no_more(
    local: GrpcSettings, repository: Path
) -> None:
    asked = gate()
    async with (
        guarded(repository, asked) as server,
        open_grpc(server, local, ExitDeadline(2)) as port,
        channel_to(port) as channel,
    ):
        calls = watches(channel)
        for call in calls.values():
            assert await call.read()
        asked.policy = parse_policy(OF_OTHERS)
        ends = {name: await end(call) for name, call in calls.items()}
    assert ends == dict.fromkeys(calls, "PERMISSION_DENIED")


async def test_they_tell_no_more_of_models_that_their_caller_sees_no_more(
    local: GrpcSettings, repository: Path
) -> None:
    asked = gate()
    async with (
        guarded(repository, asked, explicit=True) as server,
        open_grpc(server, local, ExitDeadline(2)) as port,
        channel_to(port) as channel,
    ):
        itself: Any = server
        await itself._server.load(OPEN, {})
        releases: Any = ReleasesStub(channel)
        admin: Any = tuple(bearer(ADMIN).items())
        calls = watches(channel)
        watching, changes = calls["Watch"], calls["AliasWatch"]
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.SERVING
        await changes.read()
        asked.policy = parse_policy(OF_OTHER_MODELS)
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        for name in ("open-alias", "other-alias"):
            target = pb.AliasTarget(model=OPEN, weight=100)
            definition = pb.AliasDefinition(targets=[target])
            await releases.AliasSet(
                pb.AliasSetRequest(name=name, definition=definition), metadata=admin
            )
        assert (await changes.read()).name == "other-alias"
        for call in calls.values():
            call.cancel()
