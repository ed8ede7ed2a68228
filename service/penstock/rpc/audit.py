"""Calls that the audit log has a line about: those that change the server, and refused ones."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from google.protobuf.message import Message

from penstock.access.gate import AccessGate
from penstock.core.access import AuditEvent, AuditSink
from penstock.core.errors import (
    InferenceError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from penstock.rpc.context import Method, Reply, RpcContext, Service, StatusError
from penstock.rpc.restrictions import RestrictedError, group_of
from penstock.rpc.status import StatusCode, status_code

_READING: Final = frozenset(
    {
        *("RepositoryIndex", "AliasList", "AliasShow", "AliasWatch"),
        *("SystemSharedMemoryStatus", "CudaSharedMemoryStatus"),
    }
)
"""Methods that read, of groups whose others change the server."""
_DENIALS: Final = (PermissionDeniedError, UnauthenticatedError, RestrictedError)


def audited(
    services: Iterable[Service], audit: AuditSink, gate: AccessGate | None
) -> list[Service]:
    """The services, with an event for each change and each refusal; others cost nothing.

    Handlers refuse calls, on all transports: what a method may begin without one is admitted.
    """
    return [
        replace(service, methods=[_audited(method, audit, gate) for method in service.methods])
        for service in services
    ]


def _audited(method: Method, audit: AuditSink, gate: AccessGate | None) -> Method:
    inner = method.handler
    always = group_of(method.name).changes and method.name not in _READING

    async def handler(request: Any, context: RpcContext) -> Reply | None:
        failure: Exception | None = None
        reply: Reply | None = None
        try:
            reply = await inner(request, context)
        except (InferenceError, StatusError) as error:
            failure = error
        if isinstance(failure, _DENIALS) or (always and _changes(request)):
            audit.add(_event(method.name, request, context, failure, gate))
        if failure is not None:
            raise failure
        return reply

    return replace(method, handler=handler)


def _changes(request: Any) -> bool:
    """Whether a request changes anything: settings are also read by requests without any."""
    return bool(getattr(request, "settings", True))


def _event(
    what: str,
    request: Any,
    context: RpcContext,
    failure: Exception | None,
    gate: AccessGate | None,
) -> AuditEvent:
    caller = "" if context.permit is None else context.permit.caller
    if not caller and gate is not None:
        caller = gate.caller(context.metadata, context.certificate)
    target = ""
    if isinstance(request, Message):
        target = getattr(request, "model_name", "") or getattr(request, "name", "")
    peer = context.peer.removeprefix("ipv4:").removeprefix("ipv6:")
    return AuditEvent(time.time(), what, _status(failure), caller, peer, target)


def _status(failure: Exception | None) -> str:
    if isinstance(failure, StatusError):
        return failure.code.name
    return status_code(failure).name if isinstance(failure, InferenceError) else StatusCode.OK.name
