"""Access control: methods that require a secret header (contract GT-15, GT-16), or ask a policy.

Both look at metadata before a message of the call is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import Any

from google.protobuf.message import Message

from penstock.access.current import enter, leave
from penstock.access.gate import AccessGate
from penstock.access.policy import Permit
from penstock.core.errors import InferenceError, InternalError, UnavailableError
from penstock.protocol.credentials import SECRET_PREFIX
from penstock.rpc.context import (
    Asking,
    CompletionCallbacks,
    Handler,
    Method,
    Reply,
    RpcContext,
    Service,
    Starter,
)
from penstock.settings import Feature, Restriction

_LOOK_SECONDS = 1.0
"""Between two looks at whether the caller of a call without end is still let in."""

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
    "Generate": Feature.INFERENCE,
    "Embed": Feature.INFERENCE,
    "Abort": Feature.INFERENCE,
    "HealthCheck": Feature.HEALTH,
    "GetModelInfo": Feature.METADATA,
    "GetServerInfo": Feature.METADATA,
    "GetTokenizer": Feature.METADATA,
    "GetLoads": Feature.STATISTICS,
    "SubscribeKvEvents": Feature.TRACE,  # which tell the tokens of others' prompts
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
    "AliasList": Feature.MODEL_REPOSITORY,
    "AliasShow": Feature.MODEL_REPOSITORY,
    "AliasSet": Feature.MODEL_REPOSITORY,
    "AliasRemove": Feature.MODEL_REPOSITORY,
    "AliasPromote": Feature.MODEL_REPOSITORY,
    "AliasRollback": Feature.MODEL_REPOSITORY,
    "AliasWatch": Feature.MODEL_REPOSITORY,
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


def group_of(method: str) -> Feature:
    """The group of calls that a method is in, by its name."""
    return _FEATURES[method]


class RestrictedError(UnavailableError):
    """A secret header is missing or wrong; told as Triton tells it."""


def restricted(service: Service, restrictions: Iterable[Restriction]) -> Service:
    """`service`, whose methods require the headers of `restrictions`."""
    needed = {feature: one for one in restrictions for feature in one.features}
    methods = [_guarded(method, needed.get(_FEATURES[method.name])) for method in service.methods]
    return replace(service, methods=methods)


def secret_header(restriction: Restriction) -> str:
    """The metadata of a call that carries the secret of a restriction."""
    return f"{SECRET_PREFIX}{restriction.key}"


def _guarded(method: Method, needed: Restriction | None) -> Method:
    """The method, with calls without the header refused; unchanged if there is no restriction."""
    if needed is None:
        return method
    header = secret_header(needed)
    sent = header.lower()

    def admits(call: Asking) -> bool:
        return needed.admits(call.metadata.get(sent))

    async def handler(request: Any, context: RpcContext) -> Message | None:
        if not admits(context):
            raise RestrictedError(f"This protocol is restricted, expecting header '{header}'")
        return await method.handler(request, context)

    return replace(method, handler=handler, start=None, admits=admits)


# -- the access policy ----------------------------------------------------------------------------


def asking(service: Service, gate: AccessGate) -> Service:
    """`service`, whose methods run for the holder of a permit of `gate`, and for nobody else."""
    methods = []
    for method in service.methods:
        feature = _FEATURES[method.name]
        if method.endless:
            method = replace(method, handler=_followed(method.handler, gate, feature))
        methods.append(_asking(method, gate, feature))
    return replace(service, methods=methods)


def _asking(method: Method, gate: AccessGate, feature: Feature) -> Method:
    earlier = method.admits

    def ask(call: Asking) -> Permit:
        permit = call.permit = gate.permit(call.metadata, feature, call.certificate)
        return permit

    def admits(call: Asking) -> bool:
        try:
            call.permit = gate.permit(call.metadata, feature, call.certificate)
        except InferenceError:
            return False
        return earlier is None or earlier(call)

    async def handler(request: Any, context: RpcContext) -> Message | None:
        enter(context.permit or ask(context))
        if method.client_streaming and request is not None:
            admitted = AdmittedRequests(request, lambda: ask(context))
            response = await method.handler(admitted, context)
            if admitted.refusal is not None:
                raise admitted.refusal
            return response
        if request is None and (earlier is None or earlier(context)):
            # The call was refused unread, and the policy has changed in this very moment.
            raise InternalError("the call was refused; try again")
        return await method.handler(request, context)

    start = None if method.start is None else _asking_start(method.start, ask)
    return replace(method, handler=handler, start=start, admits=admits)


def _followed(handler: Handler, gate: AccessGate, feature: Feature) -> Handler:
    """Answers without end, as long as the caller has a permit, which is asked for each second.

    What is told is what the last one sees.
    """

    async def following(request: Any, context: RpcContext) -> Reply | None:
        permit = gate.permit(context.metadata, feature, context.certificate)
        followed = Permit(permit.caller, ())
        enter(followed)
        followed.follow(permit)
        answering = asyncio.ensure_future(handler(request, context))
        refusal: InferenceError | None = None
        try:
            while refusal is None and not answering.done():
                await asyncio.wait([answering], timeout=_LOOK_SECONDS)
                refusal = _follow(followed, gate, feature, context)
        finally:
            answering.cancel()  # no effect on one that has ended
        if refusal is not None and not answering.done():
            await asyncio.wait([answering])
            raise refusal
        return answering.result()

    return following


def _follow(
    followed: Permit, gate: AccessGate, feature: Feature, context: RpcContext
) -> InferenceError | None:
    """Have what the caller may see now; returns the refusal of one who may ask no more."""
    try:
        followed.follow(gate.permit(context.metadata, feature, context.certificate))
    except InferenceError as error:
        return error
    return None


def _asking_start(begin: Starter, ask: Callable[[Asking], Permit]) -> Starter:
    def start(
        request: Any, context: RpcContext, callbacks: CompletionCallbacks
    ) -> Callable[[], None] | None:
        token = enter(context.permit or ask(context))
        try:
            return begin(request, context, callbacks)
        finally:
            leave(token)

    return start


class AdmittedRequests:
    """The requests of a stream as long as its caller has a permit, which is asked for with each.

    Without one they end, as if the client had half-closed: what was asked before is answered.
    `refusal` is then the error for the client.
    """

    def __init__(self, requests: AsyncIterator[Any], permit: Callable[[], Permit]) -> None:
        self._requests = requests
        self._permit = permit
        self.refusal: InferenceError | None = None

    def __aiter__(self) -> AdmittedRequests:
        return self

    async def __anext__(self) -> Any:
        request = await anext(self._requests)
        try:
            enter(self._permit())
        except InferenceError as error:
            self.refusal = error
        if self.refusal is not None:
            raise StopAsyncIteration
        return request
