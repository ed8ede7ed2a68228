"""What the model asks of the server: requests to other models, verbs, metrics, lines of log."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.core.errors import error_from_code
from penstock.core.request import InferenceRequest as CoreRequest
from penstock.hosting.link.messages import Kind, pack_request, unpack_response
from penstock.hosting.link.tensor_codec import TensorCodec
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.process.bls_call import PendingCall
from penstock_backends.python.process.reentry import Reentry
from penstock_backends.python.process.release_queue import LetGo

if TYPE_CHECKING:
    from penstock_backends.python.process.model_link import Stub

_ANSWERED = frozenset({"family", "create", "value"})
"""Operations on metrics that have an answer; the others cannot fail."""


class LinkedRuntime:
    """`runtime.Runtime` over the link to the server, and the questions that are under way on it."""

    def __init__(self, stub: Stub, codec: TensorCodec, let_go: LetGo) -> None:
        self.executing = False
        self.reentry: Reentry | None = None
        self.model_directory = ""
        self._stub = stub
        self._codec = codec
        self._let_go = let_go
        self._calls: dict[int, weakref.ref[PendingCall]] = {}
        self._answers: dict[int, tuple[Any, str | None]] = {}
        self._kept: set[asyncio.Task[Any]] = set()
        self._numbers = 0
        self._numbering = threading.Lock()
        self.handlers: dict[int, Callable[[Any, memoryview], None]] = {
            Kind.CALLED: self._called,
            Kind.CALL_END: self._call_end,
            Kind.CALL_ERROR: self._call_error,
            Kind.CONTROLLED: self._controlled,
        }

    # -- runtime.Runtime ----------------------------------------------------------------------

    def call(self, request: CoreRequest, *, decoupled: bool, blocks: bool = False) -> PendingCall:
        """Have the server run a request of the model's own."""
        if not self.executing:
            raise TritonModelException("BLS is only supported during the 'execute' function.")
        self._stub.tell_let_go()
        number = self._number()
        call = PendingCall(self._stub, number)
        if refusal := self.reentry and self.reentry.refusal(request):
            call.end(refusal)
            return call
        # A weak one: whoever drops the call, such as an iterator that was left, wants no more.
        self._calls[number] = weakref.ref(call, lambda _: self._let_go.call(number))
        self._stub.end_fork()
        header, payload = pack_request(number, request, self._codec)
        holds = blocks and self.reentry is not None and self.reentry.holds()
        self._stub.send(Kind.CALL, (decoupled, holds, header), payload)
        return call

    def keep(self, task: asyncio.Task[Any]) -> None:
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)

    def control(self, verb: str, *arguments: Any) -> Any:
        number = self._number()
        self._stub.send(Kind.CONTROL, (number, verb, arguments))
        return self._answer(number)

    def metric(self, operation: str, *arguments: Any) -> Any:
        asks = operation in _ANSWERED
        number = self._number() if asks else 0
        self._stub.send(Kind.METRIC, (number, operation, arguments))
        return self._answer(number) if asks else None

    def log(self, level: int, message: str, file: str, line: int) -> None:
        self._stub.send(Kind.LOG, (level, "penstock.model", file, line, message))

    # -- for the calls ------------------------------------------------------------------------

    def cancel_call(self, number: int) -> None:
        """The model wants no more responses."""
        if self._calls.pop(number, None):
            self._stub.send(Kind.CALL_CANCEL, number)

    def _answer(self, number: int) -> Any:
        """Wait for the answer to a question."""
        self._stub.wait(lambda: number in self._answers)
        value, problem = self._answers.pop(number)
        if problem is not None:
            raise TritonModelException(problem)
        return value

    def _number(self) -> int:
        with self._numbering:
            self._numbers += 1
            return self._numbers

    # -- what the server says -----------------------------------------------------------------

    def _called(self, header: Any, payload: memoryview) -> None:
        number, packed = header
        # In any case, so that the blocks of its tensors become free again.
        response = unpack_response(packed, payload, self._codec)
        if call := self._open_call(number):
            if response.final:
                self._calls.pop(number, None)
            call.add(response)

    def _call_end(self, number: Any, _: memoryview) -> None:
        if call := self._open_call(number):
            self._calls.pop(number, None)
            call.end()

    def _call_error(self, header: Any, _: memoryview) -> None:
        number, code, message = header
        if call := self._open_call(number):
            self._calls.pop(number, None)
            call.end(error_from_code(code, message))

    def _open_call(self, number: int) -> PendingCall | None:
        """The call, unless the model has dropped it."""
        call = self._calls.get(number)
        return None if call is None else call()

    def _controlled(self, header: Any, _: memoryview) -> None:
        number, value, problem = header
        self._answers[number] = value, problem
