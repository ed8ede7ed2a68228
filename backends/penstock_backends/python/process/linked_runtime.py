"""`Runtime` over the link: calls to other models (BLS), model control, metrics and log lines."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

from penstock.core.errors import error_from_code
from penstock.core.log.log_fields import trace_fields
from penstock.core.request import InferenceRequest as CoreRequest
from penstock.core.request import RequestScope
from penstock.hosting.link.messages import (
    Controlled,
    Error,
    Kind,
    NumberedResponse,
    pack_request,
    unpack_response,
)
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.process.bls_call import BlsCall
from penstock_backends.python.process.current_trace import caller
from penstock_backends.python.process.model_link import ModelLink
from penstock_backends.python.process.reentry import Reentry

_ANSWERED = frozenset({"family", "create", "value"})
"""Operations on metrics that have an answer; the others cannot fail."""


class LinkedRuntime:
    """`pb_utils.runtime.Runtime` over the link to the server; tracks the calls in flight."""

    def __init__(self, link: ModelLink) -> None:
        self.executing = False
        self.reentry: Reentry | None = None
        self.model_directory = ""
        self._link = link
        self._calls: dict[int, weakref.ref[BlsCall]] = {}
        self._answers: dict[int, tuple[Any, str | None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._numbers = 0
        self._numbering = threading.Lock()
        link.on(Kind.CALLED, self._on_response)
        link.on(Kind.CALL_END, self._on_end)
        link.on(Kind.CALL_ERROR, self._on_error)
        link.on(Kind.CONTROLLED, self._on_answer)

    # -- pb_utils.runtime.Runtime -------------------------------------------------------------

    def call(
        self,
        request: CoreRequest,
        *,
        decoupled: bool,
        blocks: bool = False,
        on_loop: bool = False,
    ) -> BlsCall:
        """Send a request of the model to another model."""
        if not self.executing:
            raise TritonModelException("BLS is only supported during the 'execute' function.")
        self._link.report_released()
        number = self._next_number()
        call = BlsCall(self._link, number, self._cancel_call, on_loop=on_loop)
        if refusal := self.reentry and self.reentry.refusal(request):
            call.end(refusal)
            return call
        # A weak reference: a call that the model drops, as by leaving an iterator, is cancelled.
        self._calls[number] = weakref.ref(call, lambda _: self._drop_call(number))
        self._link.exit_if_fork()
        if request.scope.timeline is None and (timeline := caller()) is not None:
            request = request._replace(scope=RequestScope(timeline=timeline))
        header, payload = pack_request(number, request, self._link.codec)
        holds = blocks and self.reentry is not None and self.reentry.holds()
        self._link.send(Kind.CALL, (decoupled, holds, header), payload)
        return call

    def keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def control(self, verb: str, *arguments: Any) -> Any:
        number = self._next_number()
        self._link.send(Kind.CONTROL, (number, verb, arguments))
        return self._wait_for_answer(number)

    def metric(self, operation: str, *arguments: Any) -> Any:
        answered = operation in _ANSWERED
        number = self._next_number() if answered else 0
        self._link.send(Kind.METRIC, (number, operation, arguments))
        return self._wait_for_answer(number) if answered else None

    def log(self, level: int, message: str, file: str, line: int) -> None:
        if (timeline := caller()) is None:
            self._link.log(level, message, file, line)
        else:
            self._link.log(level, message, file, line, trace_fields(timeline))

    def _wait_for_answer(self, number: int) -> Any:
        self._link.wait(lambda: number in self._answers)
        value, problem = self._answers.pop(number)
        if problem is not None:
            raise TritonModelException(problem)
        return value

    def _next_number(self) -> int:
        with self._numbering:
            self._numbers += 1
            return self._numbers

    # -- calls in flight ----------------------------------------------------------------------

    def _cancel_call(self, number: int) -> None:
        """Cancel a call unless it is complete."""
        if self._calls.pop(number, None):
            self._link.send(Kind.CALL_CANCEL, number)

    def _drop_call(self, number: int) -> None:
        """As `_cancel_call`, with the next report: called by a destructor, so at any moment."""
        if self._calls.pop(number, None):
            self._link.drop_call(number)

    def _find_call(self, number: int) -> BlsCall | None:
        """The call, unless the model has dropped it."""
        call = self._calls.get(number)
        return None if call is None else call()

    # -- messages from the server -------------------------------------------------------------

    def _on_response(self, header: NumberedResponse, payload: memoryview) -> None:
        number, packed = header
        # Unpacked in any case, so that the blocks of its tensors become free again.
        response = unpack_response(packed, payload, self._link.codec)
        if call := self._find_call(number):
            if response.final:
                self._calls.pop(number, None)
            call.add(response)

    def _on_end(self, number: int, _: memoryview) -> None:
        if call := self._find_call(number):
            self._calls.pop(number, None)
            call.end()

    def _on_error(self, header: Error, _: memoryview) -> None:
        number, code, message = header
        if call := self._find_call(number):
            self._calls.pop(number, None)
            call.end(error_from_code(code, message))

    def _on_answer(self, header: Controlled, _: memoryview) -> None:
        number, value, problem = header
        self._answers[number] = value, problem
