"""What a call is for: its head, and what serves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.http2.grpc_requests import CallHead
from penstock.http2.stream import Stream
from penstock.rpc.context import Method

if TYPE_CHECKING:
    from penstock.rpc.native.shell import Shell


@dataclass(frozen=True, slots=True)
class Route:
    """Shared by all calls whose header blocks are equal. `method` is `None` if there is none."""

    head: CallHead
    method: Method | None
    call: Callable[[Shell, int, Route], Stream]
