"""What a call is for: its head, and what serves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from penstock.http2.grpc_headers import CallHead
from penstock.rpc.context import Method, RpcContext, StatusError
from penstock.rpc.status import StatusCode

if TYPE_CHECKING:
    from penstock.rpc.native.connection import Shell
    from penstock.rpc.native.rpc_call import Call


async def _unimplemented(_: Any, __: RpcContext) -> None:
    raise StatusError(StatusCode.UNIMPLEMENTED, "")


NO_METHOD = Method("", Message, Message, _unimplemented, eager=True)
"""Answers calls of what nobody knows."""


@dataclass(frozen=True, slots=True)
class Route:
    """Shared by all calls whose header blocks are equal."""

    head: CallHead
    method: Method
    call: Callable[[Shell, int, Route], Call]
