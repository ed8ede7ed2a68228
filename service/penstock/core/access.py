"""Accesses and audit events: what two logs are told of calls, and the seams to these logs."""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol


class Access(NamedTuple):
    """One finished request. It has no query, header or tensor, which may hold secrets.

    `at`: its end, in seconds since the epoch. `method`: of HTTP, or the name of the RPC, which has
    no `path`. `received` and `sent`: bytes of the body, or of the messages of a call. `seconds`:
    from its first byte that the server looked at to its end. `model` and `request_id` of a stream
    are those of its last request. `caller` is who an access policy took it for. What is not known
    is empty.
    """

    at: float
    peer: str
    protocol: str
    method: str
    path: str
    status: str
    received: int
    sent: int
    seconds: float
    model: str = ""
    request_id: str = ""
    trace_id: str = ""
    caller: str = ""


class AccessSink(Protocol):
    """Takes accesses; implemented by the access log (`telemetry.access_log`)."""

    def add(self, access: Access) -> None:
        """Keep an access; returns at once."""


class AuditEvent(NamedTuple):
    """One event. It has no key, token, header, body or tensor.

    `at`: in seconds since the epoch. `what`: the RPC, or the method and path of HTTP; or what
    changed, as `access-policy`. `result`: the status that the caller got, or `OK`, `failed`,
    `changed`, `refused`. `target`: the model. What is not known is empty.

    What the server does by itself has a `cause` and no `peer`; its `caller` is the one whose call
    had it do so, if it was one.
    """

    at: float
    what: str
    result: str
    caller: str = ""
    peer: str = ""
    target: str = ""
    detail: str = ""
    cause: str = ""


class AuditSink(Protocol):
    """Takes events; implemented by the audit log (`telemetry.audit_log`)."""

    def add(self, event: AuditEvent) -> None:
        """Keep an event; returns at once, and never raises."""


def tell_own(
    sink: AuditSink | None, what: str, target: str, cause: str, *, failed: bool = False, **more: str
) -> None:
    """Tell the audit log, if there is one, what the server does by itself, and why.

    Not with which error it failed, which may quote a model's files: that is in the log.
    """
    if sink is not None:
        result = "failed" if failed else "OK"
        sink.add(AuditEvent(time.time(), what, result, target=target, cause=cause, **more))


def event_of_call(access: Access, caller: str) -> AuditEvent:
    """The event of a call that has ended."""
    what = f"{access.method} {access.path}" if access.path else access.method
    return AuditEvent(access.at, what, access.status, caller, access.peer, access.model)
