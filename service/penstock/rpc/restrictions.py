"""Access control: methods that require a secret header (contract GT-15, GT-16).

It is looked at before a message of the call is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from google.protobuf.message import Message

from penstock.core.errors import UnavailableError
from penstock.rpc.context import Method, RpcContext, Service
from penstock.settings import Feature, Restriction

_PREFIX = "triton-grpc-protocol-"

_FEATURES = {
    "ServerLive": Feature.HEALTH,
    "ServerReady": Feature.HEALTH,
    "ModelReady": Feature.HEALTH,
    "Check": Feature.HEALTH,
    "Watch": Feature.HEALTH,
    "List": Feature.HEALTH,
    "ServerMetadata": Feature.METADATA,
    "ModelMetadata": Feature.METADATA,
    "ServerReflectionInfo": Feature.METADATA,
    "ModelInfer": Feature.INFERENCE,
    "ModelStreamInfer": Feature.INFERENCE,
    "SystemSharedMemoryStatus": Feature.SHARED_MEMORY,
    "SystemSharedMemoryRegister": Feature.SHARED_MEMORY,
    "SystemSharedMemoryUnregister": Feature.SHARED_MEMORY,
    "CudaSharedMemoryStatus": Feature.SHARED_MEMORY,
    "CudaSharedMemoryRegister": Feature.SHARED_MEMORY,
    "CudaSharedMemoryUnregister": Feature.SHARED_MEMORY,
    "ModelConfig": Feature.MODEL_CONFIG,
    "RepositoryIndex": Feature.MODEL_REPOSITORY,
    "RepositoryModelLoad": Feature.MODEL_REPOSITORY,
    "RepositoryModelUnload": Feature.MODEL_REPOSITORY,
    "ModelStatistics": Feature.STATISTICS,
    "GetTopChannels": Feature.STATISTICS,
    "GetServers": Feature.STATISTICS,
    "GetServer": Feature.STATISTICS,
    "GetServerSockets": Feature.STATISTICS,
    "GetChannel": Feature.STATISTICS,
    "GetSubchannel": Feature.STATISTICS,
    "GetSocket": Feature.STATISTICS,
    "StreamCoreMetrics": Feature.STATISTICS,
    "TraceSetting": Feature.TRACE,
    "LogSettings": Feature.LOGGING,
}
"""The feature of each method, by which restrictions name it."""


def restricted(service: Service, restrictions: Iterable[Restriction]) -> Service:
    """`service`, whose methods require the headers of `restrictions`."""
    needed = {feature: one for one in restrictions for feature in one.features}
    methods = [_guarded(method, needed.get(_FEATURES[method.name])) for method in service.methods]
    return replace(service, methods=methods)


def secret_header(restriction: Restriction) -> str:
    """The metadata of a call that carries the secret of a restriction."""
    return f"{_PREFIX}{restriction.key}"


def _guarded(method: Method, needed: Restriction | None) -> Method:
    """The method, with calls without the header refused; unchanged if there is no restriction."""
    if needed is None:
        return method
    header = secret_header(needed)
    sent = header.lower()

    def admits(metadata: Mapping[str, str]) -> bool:
        return needed.admits(metadata.get(sent))

    async def handler(request: Any, context: RpcContext) -> Message | None:
        if not admits(context.metadata):
            raise UnavailableError(f"This protocol is restricted, expecting header '{header}'")
        return await method.handler(request, context)

    return replace(method, handler=handler, start=None, admits=admits)
