"""`OutputOwners`: the tenants whose requests the times in vLLM's reports belong to."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from itertools import chain, repeat
from typing import Any, Final

TENANT: Final[ContextVar[str]] = ContextVar("tenant", default="")
"""The label of the tenant whose request vLLM is given."""


class OutputOwners:
    """The tenants of the outputs since the last report, which lists their times in this order."""

    __slots__ = ("_by_request", "_first", "_later")

    def __init__(self) -> None:
        self._first: list[str] = []
        self._later: list[str] = []
        self._by_request: dict[str, str] = {}

    def note(self, state: Any) -> None:
        """Note an output of the request with this `RequestState`, which has not seen it yet."""
        tenant = getattr(state, "tenant", "")
        (self._first if state.is_prefilling else self._later).append(tenant)
        if tenant:
            self._by_request[state.external_req_id] = tenant

    @property
    def first(self) -> Iterator[str]:
        """The tenants of first outputs; behind those that were noted, none."""
        return chain(self._first, repeat(""))

    @property
    def later(self) -> Iterator[str]:
        """The tenants of all other outputs."""
        return chain(self._later, repeat(""))

    def of(self, request_id: str | None) -> str:
        """The tenant of a request by the id that vLLM was given."""
        return self._by_request.get(request_id or "", "")
