"""`OutputOwners`: whose requests the times in vLLM's reports belong to, and what they waited."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from itertools import chain, repeat
from typing import Any, Final, NamedTuple

from penstock.backend import InferenceRequest
from penstock_backends.language_model import tenant_label


class Owner(NamedTuple):
    """The label of a tenant, and the seconds that its request waited before vLLM had it."""

    tenant: str = ""
    waited: float = 0.0


NOBODY: Final = Owner()

OWNER: Final[ContextVar[Owner]] = ContextVar("owner", default=NOBODY)
"""The owner of the request that vLLM is given."""


def owner_of(request: InferenceRequest) -> Owner:
    """The owner of a request."""
    return Owner(tenant_label(request), request.scope.waited / 1e9)


class OutputOwners:
    """The owners of the outputs since the last report, which lists their times in this order."""

    __slots__ = ("_by_request", "_first", "_later")

    def __init__(self) -> None:
        self._first: list[Owner] = []
        self._later: list[Owner] = []
        self._by_request: dict[str, Owner] = {}

    def note(self, state: Any) -> None:
        """Note an output of the request with this `RequestState`, which has not seen it yet."""
        owner = getattr(state, "owner", NOBODY)
        (self._first if state.is_prefilling else self._later).append(owner)
        if owner is not NOBODY:
            self._by_request[state.external_req_id] = owner

    @property
    def first(self) -> Iterator[Owner]:
        """The owners of first outputs; behind those that were noted, `NOBODY`."""
        return chain(self._first, repeat(NOBODY))

    @property
    def later(self) -> Iterator[Owner]:
        """The owners of all other outputs."""
        return chain(self._later, repeat(NOBODY))

    def of(self, request_id: str | None) -> Owner:
        """The owner of a request by the id that vLLM was given."""
        return self._by_request.get(request_id or "", NOBODY)
