"""Lines of the access log about gRPC calls.

Calls that reach no method have none: those of an unknown path, or of a compression that is not
supported.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from google.protobuf.message import Message

from penstock.core.access import Access, AccessSink
from penstock.core.errors import InferenceError
from penstock.core.log.verbosity import Verbosity
from penstock.rpc.context import Method, Reply, RpcContext, StatusError
from penstock.rpc.infer_message import InferMessage
from penstock.rpc.status import StatusCode, status_code


class LoggedCalls:
    """An observer of calls that adds a line to the access log for each."""

    def __init__(self, log: AccessSink) -> None:
        self.switch = Verbosity()
        self.switch.level = 1
        self.log = log
        self._size = 0

    def parsed(self, size: int) -> None:
        self._size = size

    def take_size(self) -> int:
        """Bytes of the message that was parsed just now; 0 for a call of which none was."""
        size, self._size = self._size, 0
        return size

    def begin(self, method: Method, context: RpcContext) -> LoggedCall:
        return LoggedCall(self, method, context)


class LoggedCall:
    """The line about one call. A stream has the model and the id of its last request."""

    def __init__(self, calls: LoggedCalls, method: Method, context: RpcContext) -> None:
        self._calls = calls
        self._method = method
        self._context = context
        self._peer = context.peer
        self._deadline = context.deadline
        self._received = self._sent = 0
        self._model = self._request_id = ""
        self._ended = False

    def received(self, message: Any) -> None:
        self._received += self._calls.take_size()
        if isinstance(message, InferMessage):
            self._model, self._request_id = message.head.model_name, message.head.id
        elif isinstance(message, Message):
            self._model = getattr(message, "model_name", "") or getattr(message, "name", "")

    def sent(self, reply: Reply) -> None:
        if isinstance(reply, list):
            self._sent += sum(map(len, reply))
        elif isinstance(reply, bytes):
            self._sent += len(reply)
        else:
            self._sent += reply.ByteSize()

    def ended(self, error: BaseException | None) -> None:
        if self._ended:
            return
        self._ended = True
        context = self._context
        self._calls.log.add(
            Access(
                at=time.time(),
                peer=self._peer.removeprefix("ipv4:").removeprefix("ipv6:"),
                protocol="gRPC",
                method=self._method.name,
                path="",
                status=self._status(error).name,
                received=self._received,
                sent=self._sent,
                seconds=(time.monotonic_ns() - context.opened) / 1e9,
                model=self._model,
                request_id=self._request_id,
                trace_id=f"{context.trace_id:032x}" if context.trace_id else "",
            )
        )

    def _status(self, error: BaseException | None) -> StatusCode:
        """The status of the call; that of the transport where it has ended the call itself."""
        if error is None:
            return StatusCode.OK
        if isinstance(error, InferenceError):
            return status_code(error)
        if isinstance(error, StatusError):
            return error.code
        if not isinstance(error, asyncio.CancelledError):
            return StatusCode.INTERNAL
        late = self._deadline is not None and asyncio.get_running_loop().time() >= self._deadline
        return StatusCode.DEADLINE_EXCEEDED if late else StatusCode.CANCELLED
