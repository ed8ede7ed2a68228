"""Metadata of a call that its requests pass on to the model (contract GT-17)."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.header_forward import HeaderForward
from penstock.rpc.context import RpcContext

_NONE: Mapping[str, str] = {}


def forwarded(forward: HeaderForward | None, context: RpcContext) -> Mapping[str, str]:
    """The text metadata that `forward` chooses; raises for reserved names."""
    if forward is None:
        return _NONE
    fields = context.metadata_fields
    return forward.chosen((name, value) for name, value in fields if isinstance(value, str))
