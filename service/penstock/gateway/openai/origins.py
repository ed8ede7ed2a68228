"""`AllowedOrigins`: which web pages' scripts may ask OpenAI's API, as browsers want it (CORS)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.replies import Reply

_METHODS: Final = "GET, POST, DELETE"
_REMEMBERED: Final = "600"
"""Seconds for which a browser need not ask again."""


class AllowedOrigins:
    """Adds what browsers want to see in answers to the pages of these origins (OA-24)."""

    def __init__(self, origins: Collection[str]) -> None:
        self._origins = frozenset(origins)

    def admit(self, call: HttpCall) -> Reply | None:
        """Mark the answer to a call of an allowed page; the reply where it asks beforehand."""
        origin = call.headers.get("origin", "")
        if not origin or self._origins.isdisjoint((origin, "*")):
            return None
        call.more_fields = [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", b"*"),
            (b"vary", b"origin"),
        ]
        if call.method != "OPTIONS" or "access-control-request-method" not in call.headers:
            return None
        answer = Reply(204, [], [])
        answer.add_header("access-control-allow-methods", _METHODS)
        answer.add_header("access-control-max-age", _REMEMBERED)
        if asked := call.headers.get("access-control-request-headers"):
            answer.add_header("access-control-allow-headers", asked)
        return answer
