"""The table of access: every RPC and every HTTP route, by the group that lets callers in.

What is added without a row here fails, as it does where it has no group at all.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import httpx
import pytest
from loadtest.hostile.routes import Place, places

from access.models import OPEN, guarded
from access.policies import bearer, gate, hashed
from gateway.serving import LOCAL
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway, open_openai
from penstock.gateway.clouds.sagemaker import open_sagemaker
from penstock.gateway.clouds.vertex import open_vertex
from penstock.gateway.metrics import open_metrics
from penstock.protocol import reflection_pb2
from penstock.protocol.pool import POOL
from penstock.rpc.server import open_grpc
from penstock.settings import Feature, GrpcSettings, MetricsSettings, OpenAiSettings
from rpc.serving import channel_to

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


def _policy() -> str:
    """For each group a caller that may make its calls alone, and one that may make all others."""
    parts = []
    for group in Feature:
        others = ", ".join(f'"{other}"' for other in Feature if other is not group)
        for name, calls in ((ONLY.format(group), f'"{group}"'), (BUT.format(group), others)):
            parts.append(f"[callers.{name}]\nkeys = {hashed(name)}")
            parts.append(f'[[rules]]\ncallers = ["{name}"]\ncalls = [{calls}]')
    return "\n".join(parts)


POLICY = _policy()


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


@asynccontextmanager
async def all_ports(repository: Path) -> AsyncIterator[Mapping[str, httpx.AsyncClient]]:
    http, openai, grace = replace(LOCAL, docs=True), OpenAiSettings(port=0), ExitDeadline(2)
    vertex = {"AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"}
    async with guarded(repository, gate(POLICY)) as server, AsyncExitStack() as stack:
        opened = {
            "http": open_gateway(server, http, grace, openai=openai),
            "openai": open_openai(server, http, openai, page, grace),
            "metrics": open_metrics(
                page, MetricsSettings(address="127.0.0.1", port=0), gate=server.access
            ),
            "sagemaker": open_sagemaker(server, http, 0, repository, {}, grace),
            "vertex": open_vertex(server, http, 0, OPEN, vertex, grace, page),
        }
        clients = {}
        for name, opening in opened.items():
            address = f"http://127.0.0.1:{await stack.enter_async_context(opening)}"
            client = httpx.AsyncClient(base_url=address, verify=False, timeout=20)
            clients[name] = await stack.enter_async_context(client)
        yield clients


async def test_every_route_lets_in_its_group_and_no_other(repository: Path) -> None:
    found, expected = {}, {}
    async with all_ports(repository) as clients:
        for place in places():
            group = group_of(place)
            callers: tuple[dict[str, str], ...] = (
                {},
                bearer(BUT.format(group)),
                bearer(ONLY.format(group)),
            )
            statuses = [
                (
                    await clients[place.port].request(
                        place.method, place.path, headers={**who, **dict(place.headers)}
                    )
                ).status_code
                for who in callers
            ]
            found[place.label] = [*statuses[:2], statuses[2] in (401, 403)]
            expected[place.label] = [401, 403, False]
    assert found == expected


async def outcome(channel: grpc.aio.Channel, rpc: Rpc, key: str) -> str:
    """The code that an RPC ends with; "OK" if it begins to answer.

    A stream is only read where it may be refused: who writes then may hear of an error of its own.
    """
    metadata = [("authorization", f"Bearer {key}")] if key else []
    call: Any
    if rpc.streams:
        call = channel.stream_stream(rpc.path, bytes, bytes)(None, metadata=metadata, timeout=20)
        if key == ONLY.format(rpc.group):
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


async def test_every_rpc_lets_in_its_group_and_no_other(
    local: GrpcSettings, repository: Path
) -> None:
    found, expected = {}, {}
    settings = replace(local, channelz=True, engine_rpc="vllm")
    async with (
        guarded(repository, gate(POLICY)) as server,
        open_grpc(server, settings, ExitDeadline(2)) as port,
        channel_to(port) as channel,
    ):
        names = await services(channel)
        for rpc in (
            Rpc.of(each) for name in names for each in POOL.FindServiceByName(name).methods
        ):
            only, but = ONLY.format(rpc.group), BUT.format(rpc.group)
            codes = [await outcome(channel, rpc, key) for key in ("", but, only)]
            found[rpc.path] = [*codes[:2], codes[2] in ("UNAUTHENTICATED", "PERMISSION_DENIED")]
            expected[rpc.path] = ["UNAUTHENTICATED", "PERMISSION_DENIED", False]
    assert len(names) == 8
    assert found == expected
