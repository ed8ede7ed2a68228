"""Audit events: who has asked for what, and what came of it; and the seam to their log."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from penstock.core.access import Access


class AuditEvent(NamedTuple):
    """One event. It has no key, token, header, body or tensor.

    `at`: in seconds since the epoch. `what`: the RPC, or the method and path of HTTP; or what
    changed, as `access-policy`. `result`: the status that the caller got, `changed` or `refused`.
    `target`: the model. What is not known is empty: `caller` of whom no policy knows, both `caller`
    and `peer` of what the server does by itself.
    """

    at: float
    what: str
    result: str
    caller: str = ""
    peer: str = ""
    target: str = ""
    detail: str = ""


class AuditSink(Protocol):
    """Takes events; implemented by the audit log (`telemetry.audit_log`)."""

    def add(self, event: AuditEvent) -> None:
        """Keep an event; returns at once, and never raises."""


def event_of_call(access: Access, caller: str) -> AuditEvent:
    """The event of a call that has ended."""
    what = f"{access.method} {access.path}" if access.path else access.method
    return AuditEvent(access.at, what, access.status, caller, access.peer, access.model)
