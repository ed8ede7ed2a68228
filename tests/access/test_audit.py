"""What the audit log is told: changes and refusals over gRPC and HTTP, and new files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from loadtest.authority import Authority, write_pair

from access.kept import Kept
from access.models import OPEN, SECRET, guarded
from access.policies import ADMIN, ALICE, BOB, POLICY, bearer, gate, replaced
from gateway.serving import LOCAL
from penstock.access.watch import PolicyWatch
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway
from penstock.gateway.connections.open_connections import ConnectionRules
from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol import releases_pb2
from penstock.protocol.releases_pb2_grpc import ReleasesStub
from penstock.rpc.server import open_grpc
from penstock.server.control_policy import ControlPolicy
from penstock.server.seen_models import seen
from penstock.server.server import InferenceServer
from penstock.settings import Feature, GrpcSettings, Restriction
from penstock.system.certificates import ServerCertificates
from rpc.serving import Client, channel_to, infer_request, open_models
from system.test_certificates import fill, settings


@asynccontextmanager
async def over_grpc(repository: Path, local: GrpcSettings, kept: Kept) -> AsyncIterator[Client]:
    policy = ControlPolicy(log=True)
    async with (
        guarded(repository, explicit=True, control_policy=policy) as server,
        open_grpc(server, local, ExitDeadline(2), audit=kept) as port,
        channel_to(port) as channel,
    ):
        yield Client(channel)


async def call(client: Client, name: str, request: Any, headers: Mapping[str, str]) -> None:
    """A call, whatever becomes of it."""
    try:
        await client.call(name, request, metadata=[*headers.items()])
    except grpc.aio.AioRpcError:
        return


async def test_changes_by_grpc_are_told(local: GrpcSettings, repository: Path) -> None:
    kept = Kept()
    load, unload = pb.RepositoryModelLoadRequest, pb.RepositoryModelUnloadRequest
    async with over_grpc(repository, local, kept) as client:
        await call(client, "RepositoryModelLoad", load(model_name=OPEN), bearer(ADMIN))
        await call(client, "RepositoryIndex", None, bearer(ADMIN))
        await call(
            client, "ModelInfer", infer_request(OPEN, IN=np.ones(1, np.float32)), bearer(ADMIN)
        )
        await call(client, "RepositoryModelUnload", unload(model_name=OPEN), bearer(ADMIN))
        await call(client, "RepositoryModelLoad", load(model_name="absent"), bearer(ADMIN))
        await call(client, "LogSettings", None, bearer(ADMIN))
        changes = pb.LogSettingsRequest()
        changes.settings["log_verbose_level"].uint32_param = 0
        await call(client, "LogSettings", changes, bearer(ADMIN))
    assert kept.told == [
        ("admin", "RepositoryModelLoad", OPEN, "OK"),
        ("admin", "RepositoryModelUnload", OPEN, "OK"),
        ("admin", "RepositoryModelLoad", "absent", "INTERNAL"),
        ("admin", "LogSettings", "", "UNIMPLEMENTED"),
    ]
    assert all(event.peer.startswith("127.0.0.1:") for event in kept.events)


async def test_refusals_by_grpc_are_told(local: GrpcSettings, repository: Path) -> None:
    kept = Kept()
    infer = infer_request(OPEN, IN=np.ones(1, np.float32))
    load = pb.RepositoryModelLoadRequest(model_name=SECRET)
    async with over_grpc(repository, local, kept) as client:
        await call(client, "ModelInfer", infer, {})
        await call(client, "ModelInfer", infer, bearer("wrong-key"))
        await call(client, "ModelInfer", infer, bearer(BOB))
        await call(client, "RepositoryModelLoad", load, bearer(ALICE))
        with pytest.raises(grpc.aio.AioRpcError):
            await client.conversation([infer])
    assert kept.told == [
        ("", "ModelInfer", "", "UNAUTHENTICATED"),
        ("", "ModelInfer", "", "UNAUTHENTICATED"),
        ("bob", "ModelInfer", "", "PERMISSION_DENIED"),
        ("alice", "RepositoryModelLoad", SECRET, "PERMISSION_DENIED"),
        ("", "ModelStreamInfer", "", "UNAUTHENTICATED"),
    ]


async def test_a_missing_secret_header_is_a_refusal(local: GrpcSettings, repository: Path) -> None:
    kept = Kept()
    secret = Restriction(frozenset({Feature.INFERENCE}), "key", "secret-value")
    restricted = replace(local, restrictions=(secret,))
    async with over_grpc(repository, restricted, kept) as client:
        await call(client, "ModelInfer", infer_request(OPEN), bearer(ALICE))
    assert kept.told == [("alice", "ModelInfer", "", "UNAVAILABLE")]


async def test_changes_and_refusals_by_http_are_told(repository: Path) -> None:
    kept = Kept()
    rules = ConnectionRules(audit=kept)
    async with (
        guarded(repository, explicit=True) as server,
        open_gateway(server, LOCAL, ExitDeadline(2), rules) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        for path, headers in (
            (f"/v2/repository/models/{OPEN}/load", bearer(ADMIN)),
            ("/v2/repository/index", bearer(ADMIN)),
            (f"/v2/repository/models/{SECRET}/load", bearer(ALICE)),
            ("/v2/logging", bearer(ADMIN)),
            (f"/v2/models/{OPEN}/infer", bearer("wrong-key")),
            (f"/v2/models/{OPEN}/infer", bearer(BOB)),
            (f"/v2/models/{OPEN}/infer?key={ALICE}", bearer(BOB)),
        ):
            await client.post(path, headers=headers, content=b"{}")
        await client.get("/v2/logging", headers=bearer(ADMIN))
    told = [(caller, what.split("?")[0], result) for caller, what, _, result in kept.told]
    assert told == [
        ("admin", f"POST /v2/repository/models/{OPEN}/load", "200"),
        ("alice", f"POST /v2/repository/models/{SECRET}/load", "403"),
        ("admin", "POST /v2/logging", "501"),
        ("", f"POST /v2/models/{OPEN}/infer", "401"),
        ("bob", f"POST /v2/models/{OPEN}/infer", "403"),
        ("bob", f"POST /v2/models/{OPEN}/infer", "403"),
    ]


async def test_a_hidden_model_that_is_asked_for_is_told(
    local: GrpcSettings, repository: Path
) -> None:
    kept = Kept()
    async with (
        guarded(repository, audit=kept) as server,
        open_grpc(server, local, ExitDeadline(2)) as port,
        channel_to(port) as channel,
    ):
        await call(Client(channel), "ModelInfer", infer_request(SECRET), bearer(ALICE))
    assert kept.told == [("alice", "model", SECRET, "HIDDEN")]


async def test_changed_files_are_told(tmp_path: Path) -> None:
    kept = Kept()
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    watch = PolicyWatch(file, kept)
    for text in (f"{POLICY}\n", "rules = 1"):
        replaced(file, text)
        await watch.look()
    folder = fill(tmp_path / "tls")
    certificates = ServerCertificates("gRPC", settings(folder), kept)
    certificates.context("h2")
    fill(folder)
    await certificates.look()
    write_pair(folder, "server", (Authority().signed()[0], (folder / "server.key").read_bytes()))
    for _ in range(2):
        await certificates.look()
    assert kept.told == [
        ("", "access-policy", "", "changed"),
        ("", "access-policy", "", "refused"),
        ("", "certificate", "gRPC", "changed"),
        ("", "certificate", "gRPC", "refused"),
    ]
    assert "rules" in kept.events[1].detail


async def test_changes_of_aliases_by_grpc_are_told(local: GrpcSettings, repository: Path) -> None:
    kept = Kept()
    admin = [*bearer(ADMIN).items()]
    async with over_grpc(repository, local, kept) as client:
        stub: Any = ReleasesStub(client.channel)
        await stub.AliasList(releases_pb2.AliasListRequest(), metadata=admin)
        for asked in (
            stub.AliasRemove(releases_pb2.AliasRemoveRequest(name="absent"), metadata=admin),
            stub.AliasRollback(releases_pb2.AliasRollbackRequest(name="absent"), metadata=admin),
        ):
            with pytest.raises(grpc.aio.AioRpcError):
                await asked
    assert kept.told == [
        ("admin", "AliasRemove", "absent", "NOT_FOUND"),
        ("admin", "AliasRollback", "absent", "NOT_FOUND"),
    ]


BROKEN = "broken"


def behind(server: InferenceServer) -> InferenceServer:
    """The server as frontends see it behind the policy."""
    server.access = gate()
    return seen(server)


def write_broken(repository: Path) -> None:
    (repository / BROKEN / "1").mkdir(parents=True)
    config = (repository / OPEN / "config.pbtxt").read_text().replace("identity", "secret-value")
    (repository / BROKEN / "config.pbtxt").write_text(config)


async def test_loads_at_the_start_and_by_polling_are_told(repository: Path) -> None:
    kept = Kept()
    async with open_models(repository, audit=kept) as server:
        assert kept.by_server == [
            ("", "load", OPEN, "OK", "start"),
            ("", "load", SECRET, "OK", "start"),
        ]
        kept.events.clear()
        write_broken(repository)
        await server.follow([OPEN, BROKEN], [SECRET])
        assert kept.by_server == [
            ("", "load", BROKEN, "failed", "polling"),
            ("", "load", OPEN, "OK", "polling"),
            ("", "unload", SECRET, "OK", "polling"),
        ]


async def test_loads_by_calls_and_what_they_push_out_are_told(
    local: GrpcSettings, repository: Path
) -> None:
    kept = Kept()
    idle = 'parameters { key: "penstock.idle_seconds" value { string_value: "0.001" } }'
    with (repository / OPEN / "config.pbtxt").open("a") as config:
        config.write(idle)
    write_broken(repository)
    infer = infer_request(OPEN, IN=np.ones(1, np.float32))
    async with (
        open_models(repository, demand=True, explicit=True, audit=kept) as server,
        open_grpc(behind(server), local, ExitDeadline(2), audit=kept) as port,
        channel_to(port) as channel,
    ):
        assert kept.events == []
        residency = server.residency
        assert residency is not None
        client = Client(channel)
        await call(client, "ModelInfer", infer, bearer(ALICE))
        await call(client, "ModelInfer", infer_request(BROKEN), bearer(ADMIN))
        while not any(event.what == "unload" for event in kept.events):
            await asyncio.sleep(0)
            await residency.unload_idle()
    assert kept.by_server == [
        ("alice", "load", OPEN, "OK", "call"),
        ("admin", "load", BROKEN, "failed", "call"),
        ("", "unload", OPEN, "OK", "idle"),
    ]
    assert len(kept.events) == 3
