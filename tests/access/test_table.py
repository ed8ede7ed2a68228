"""The table of access: every RPC and every HTTP route, by the group that lets callers in.

Each is asked by nobody, by a stranger, by a caller with all groups but its own, and by one with its
own alone; and these are known by their key, by their token, or by their certificate. What is added
without a row here fails, as it does where it has no group at all.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import httpx
import pytest
from loadtest.authority import Authority, client_context
from loadtest.hostile.routes import Place, places

from access.issuer import Issuer, with_tokens
from access.models import OPEN, guarded
from access.policies import bearer, hashed
from gateway.serving import LOCAL
from penstock.access.gate import AccessGate
from penstock.access.key_set import KeySet
from penstock.access.policy_file import parse_policy
from penstock.access.tokens import TokenVerifier
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway, open_openai
from penstock.gateway.clouds.sagemaker import open_sagemaker
from penstock.gateway.clouds.vertex import open_vertex
from penstock.gateway.metrics import open_metrics
from penstock.protocol import reflection_pb2
from penstock.protocol.pool import POOL
from penstock.rpc.server import open_grpc
from penstock.settings import (
    Feature,
    GrpcSettings,
    MetricsSettings,
    OpenAiSettings,
    TlsSettings,
)
from rpc.serving import channel_to
from system.test_certificates import fill
from system.test_certificates import settings as tls_settings

RPCS = {
    "health": "ServerLive ServerReady ModelReady Check Watch List HealthCheck",
    "metadata": "ServerMetadata ModelMetadata ServerReflectionInfo GetModelInfo GetServerInfo"
    " GetTokenizer",
    "inference": "ModelInfer ModelStreamInfer Generate Embed Abort",
    "shared-memory": "SystemSharedMemoryStatus SystemSharedMemoryRegister"
    " SystemSharedMemoryUnregister CudaSharedMemoryStatus CudaSharedMemoryRegister"
    " CudaSharedMemoryUnregister",
    "model-config": "ModelConfig",
    "model-repository": "RepositoryIndex RepositoryModelLoad RepositoryModelUnload AliasList"
    " AliasShow AliasSet AliasRemove AliasPromote AliasRollback AliasWatch",
    "statistics": "ModelStatistics GetTopChannels GetServers GetServer GetServerSockets GetChannel"
    " GetSubchannel GetSocket StreamCoreMetrics GetLoads",
    "trace": "TraceSetting SubscribeKvEvents",
    "logging": "LogSettings",
}
SERVICES = [
    "grpc.channelz.v1.Channelz",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "inference.GRPCInferenceService",
    "penstock.v1.Releases",
    "vllm.grpc.engine.VllmEngine",
    "xds.service.orca.v3.OpenRcaService",
]
RPC_GROUPS = {name: group for group, names in RPCS.items() for name in names.split()}

_V2 = r"/v2/models/simple(/versions/1)?"
ROUTES = {
    "health": rf"/v2/health/\w+|{_V2}/ready|/health/ready|/ping|/health",
    "metadata": rf"/v2|{_V2}|/openapi.json|/docs",
    "inference": rf"{_V2}/(infer|generate|generate_stream)"
    r"|/v1/(chat/completions(/\w+)?|completions(/\w+)?|responses(/\w+)*|embeddings|rerank|score)"
    r"|/v1/(audio/\w+|messages(/\w+)?|x)|/v1/?"
    r"|/(rerank|v2/rerank|score|classify|pooling|tokenize|detokenize|inference/v1/generate)"
    r"|/invocations|/models/simple/invoke|/predict",
    "shared-memory": r"/v2/(system|cuda)sharedmemory/\w+(/\w+)*",
    "model-config": rf"{_V2}/config",
    "model-repository": r"/v2/repository/(x/)?(index|models/simple/(load|unload))"
    r"|/v2/repository/aliases(/x(/rollback|/promote)?)?"
    r"|/v1/models/?|/v1/models/simple(/load|/unload)?|/models|/models/simple",
    "statistics": rf"{_V2}/stats|/v2/models/stats",
    "trace": r"(/v2|/v2/models/simple)/trace/setting",
    "logging": r"/v2/logging",
    "engine-control": rf"{_V2}/(engine/x|adapters(/x)?)",
    "request-control": r"/v1/requests/x",
    "metrics": r"/metrics|/other",
}
_REDIRECTED = {"generate": "inference", "config": "model-config", "metrics": "metrics"}

ONLY, BUT = "only-{}", "all-but-{}"
NOBODY, STRANGER = "", "stranger"
WAYS = ("key", "token", "certificate")
AUTHORITY = Authority()
ISSUER = Issuer()


def _uri(name: str) -> str:
    return f"spiffe://table/{name}"


def _policy() -> str:
    """For each group a caller that may make its calls alone, and one that may make all others."""
    parts = []
    for group in Feature:
        others = ", ".join(f'"{other}"' for other in Feature if other is not group)
        for name, calls in ((ONLY.format(group), f'"{group}"'), (BUT.format(group), others)):
            parts.append(f"[callers.{name}]\nkeys = {hashed(name)}")
            parts.append(f'certificates = ["{_uri(name)}"]')
            parts.append(f'[[rules]]\ncallers = ["{name}"]\ncalls = [{calls}]')
    return "\n".join(parts)


POLICY = _policy()


def gate_of_table() -> AccessGate:
    """Knows the callers of the table by each way."""
    policy = parse_policy(with_tokens("keys.json", POLICY))
    assert policy.tokens is not None
    keys = KeySet.parse(ISSUER.key_set())
    return AccessGate(policy, TokenVerifier(policy.tokens, policy, keys, time.time))


def headers_of(way: str, name: str) -> dict[str, str]:
    """Credentials of a caller; a stranger's key is wrong, and its token has expired."""
    if way == "certificate" or name == NOBODY:
        return {}
    if way == "key":
        return bearer(name)
    ends = time.time() + (-3600 if name == STRANGER else 3600)
    return bearer(ISSUER.token(sub=name, groups=[], exp=ends))


@cache
def certificate_of(name: str) -> tuple[bytes, bytes]:
    return AUTHORITY.signed(uris=[_uri(name)] if name else [])


@cache
def context_of(name: str) -> ssl.SSLContext:
    return client_context(AUTHORITY.pem, certificate_of(name), "http/1.1")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsSettings:
    return tls_settings(fill(tmp_path_factory.mktemp("tls"), AUTHORITY))


def group_of(place: Place) -> str:
    """The group that lets in who asks for a place; raises for a place that is in no row."""
    for _, target in place.headers:
        return _REDIRECTED[target.rpartition("/")[2]]
    (group,) = [name for name, paths in ROUTES.items() if re.fullmatch(paths, place.path)]
    return group


@pytest.mark.parametrize("place", places(), ids=lambda place: place.label)
def test_every_route_is_in_one_row(place: Place) -> None:
    assert group_of(place) in list(Feature)


class Rpc(NamedTuple):
    """An RPC, the group that lets in who calls it, and whether its requests are a stream."""

    path: str
    group: str
    streams: bool

    @classmethod
    def of(cls, method: Any) -> Rpc:
        path = f"/{method.containing_service.full_name}/{method.name}"
        return cls(path, RPC_GROUPS[method.name], method.client_streaming)


async def page(_: str) -> tuple[bytes, str]:
    return b"", "text/plain"


Clients = Callable[[str, str], httpx.AsyncClient]
"""The client of a caller for a port."""


@asynccontextmanager
async def all_ports(repository: Path, tls: TlsSettings | None) -> AsyncIterator[Clients]:
    http, openai, grace = replace(LOCAL, docs=True), OpenAiSettings(port=0), ExitDeadline(2)
    if tls is not None:
        http = replace(http, tls=tls)
    vertex = {"AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"}
    async with guarded(repository, gate_of_table()) as server, AsyncExitStack() as stack:
        opened = {
            "http": open_gateway(server, http, grace, openai=openai),
            "openai": open_openai(server, http, openai, page, grace),
            "metrics": open_metrics(
                page, MetricsSettings(address="127.0.0.1", port=0), gate=server.access
            ),
            "sagemaker": open_sagemaker(server, http, 0, repository, {}, grace),
            "vertex": open_vertex(server, http, 0, OPEN, vertex, grace, page),
        }
        ports = {name: await stack.enter_async_context(opening) for name, opening in opened.items()}
        clients: dict[tuple[str, str], httpx.AsyncClient] = {}

        def client(port: str, name: str) -> httpx.AsyncClient:
            shown = port, name if tls else ""
            if shown not in clients:
                clients[shown] = httpx.AsyncClient(
                    base_url=f"{'https' if tls else 'http'}://localhost:{ports[port]}",
                    verify=context_of(name) if tls else False,
                    timeout=20,
                )
                stack.push_async_callback(clients[shown].aclose)
            return clients[shown]

        yield client


@pytest.mark.parametrize("way", WAYS)
async def test_every_route_lets_in_its_group_and_no_other(
    repository: Path, files: TlsSettings, way: str
) -> None:
    found, expected = {}, {}
    by_certificate = way == "certificate"
    # The port of metrics has no TLS.
    asked = [place for place in places() if not by_certificate or place.port != "metrics"]
    async with all_ports(repository, files if by_certificate else None) as clients:
        for place in asked:
            group = group_of(place)
            statuses = [
                (
                    await clients(place.port, who).request(
                        place.method,
                        place.path,
                        headers={**headers_of(way, who), **dict(place.headers)},
                    )
                ).status_code
                for who in (NOBODY, STRANGER, BUT.format(group), ONLY.format(group))
            ]
            found[place.label] = [*statuses[:3], statuses[3] in (401, 403)]
            expected[place.label] = [401, 401, 403, False]
    assert found == expected


async def outcome(channel: grpc.aio.Channel, rpc: Rpc, way: str, who: str) -> str:
    """The code that an RPC ends with; "OK" if it begins to answer.

    A stream is only read where it may be refused: who writes then may hear of an error of its own.
    """
    metadata = [*headers_of(way, who).items()]
    call: Any
    if rpc.streams:
        call = channel.stream_stream(rpc.path, bytes, bytes)(None, metadata=metadata, timeout=20)
        if who == ONLY.format(rpc.group):
            await call.done_writing()
    else:
        call = channel.unary_stream(rpc.path, bytes, bytes)(b"", metadata=metadata, timeout=20)
    try:
        await call.read()
        return (await call.code()).name if call.done() else "OK"
    except grpc.aio.AioRpcError as error:
        return error.code().name
    finally:
        call.cancel()


async def services(channel: grpc.aio.Channel) -> list[str]:
    """The names of all services, which reflection tells."""
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    call = channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )(iter([request]), metadata=[("authorization", f"Bearer {ONLY.format('metadata')}")])
    answer: Any = await call.read()
    return [each.name for each in answer.list_services_response.service]


@pytest.mark.parametrize("way", WAYS)
async def test_every_rpc_lets_in_its_group_and_no_other(
    local: GrpcSettings, repository: Path, files: TlsSettings, way: str
) -> None:
    found, expected = {}, {}
    settings = replace(local, channelz=True, engine_rpc="vllm")
    by_certificate = way == "certificate"
    if by_certificate:
        settings = replace(settings, tls=files)
    async with (
        guarded(repository, gate_of_table()) as server,
        open_grpc(server, settings, ExitDeadline(2)) as port,
        AsyncExitStack() as stack,
    ):
        channels: dict[str, grpc.aio.Channel] = {}

        async def channel(name: str) -> grpc.aio.Channel:
            shown = name if by_certificate else ""
            if shown not in channels:
                opened = secured(port, name) if by_certificate else channel_to(port)
                channels[shown] = await stack.enter_async_context(opened)
            return channels[shown]

        names = await services(await channel(ONLY.format("metadata")))
        for rpc in (
            Rpc.of(each) for name in names for each in POOL.FindServiceByName(name).methods
        ):
            callers = NOBODY, STRANGER, BUT.format(rpc.group), ONLY.format(rpc.group)
            codes = [await outcome(await channel(who), rpc, way, who) for who in callers]
            found[rpc.path] = [*codes[:3], codes[3] in ("UNAUTHENTICATED", "PERMISSION_DENIED")]
            expected[rpc.path] = [*["UNAUTHENTICATED"] * 2, "PERMISSION_DENIED", False]
    assert names == SERVICES
    assert found == expected


def secured(port: int, name: str) -> grpc.aio.Channel:
    """A channel of the caller with a certificate."""
    certificate, key = certificate_of(name)
    shown = grpc.ssl_channel_credentials(AUTHORITY.pem, key, certificate)
    return grpc.aio.secure_channel(f"localhost:{port}", shown)
