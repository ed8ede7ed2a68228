"""Accesses: what the access log says about finished requests, and the seam to it."""

from __future__ import annotations

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
