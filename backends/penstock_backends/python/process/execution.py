"""One batch that the model executes, from the message that brings it to those that answer it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.core.buffer import Buffer
from penstock.core.errors import InferenceError, InternalError
from penstock.core.request import InferenceResponse as CoreResponse
from penstock.hosting.link.frames import encode
from penstock.hosting.link.messages import Done, Kind
from penstock_backends.python.pb_utils.request import InferenceRequest
from penstock_backends.python.pb_utils.responses import InferenceResponse
from penstock_backends.python.process.replies import PendingReply, Terms, printable
from penstock_backends.python.process.traceback_text import describe

if TYPE_CHECKING:
    from penstock_backends.python.process.model_link import Stub

_QUICK = 100_000
"""Nanoseconds of an execution below which its answers wait for those of the next."""


class Execution:
    """The requests of a batch, whose turn it is, and what the model makes of them.

    `take` is told what `execute` returned, or `fail` what it raised. Then `finish` gives what is to
    be said to the server; `failures` does where others may have begun meanwhile.
    """

    def __init__(
        self, stub: Stub, name: str, terms: Terms, header: Any, payload: memoryview
    ) -> None:
        self._number, packed = header
        stub.begin(self._number)
        self._begun = time.monotonic_ns()
        self._finished = 0
        self._waited = -stub.waited
        self._stub = stub
        self._name = name
        self._terms = terms
        owed = stub.accept(packed, payload, terms)
        self._replies = [reply for reply, _ in owed]
        self._cores = [core for _, core in owed]
        self.requests = [InferenceRequest.received(core, reply) for reply, core in owed]
        self._collected: deque[tuple[PendingReply, CoreResponse]] = deque()
        self._problem: str | None = None
        self._started = time.monotonic_ns()

    @property
    def quick(self) -> bool:
        """Whether it took so little time that its answers may wait for those of the next.

        Time in which other models answered it does not count: the next will ask them too, and
        what waits leaves together with what it asks.
        """
        return self._finished - self._begun - self._waited <= _QUICK

    def under_way(self) -> Done:
        """The header of `DONE` for an execution in flight, while others may begin."""
        return self._number, self._begun, self._started, time.monotonic_ns(), 0

    def take(self, returned: Any) -> None:
        """Take the responses that `execute` returned, by position; contract PY-04 and PY-10."""
        if self._terms.decoupled:
            if returned is not None:
                raise InternalError(
                    f"Python model '{self._name}' is using the decoupled mode and the execute"
                    " function must return None."
                )
            return
        _check(self.requests, returned)
        for reply, core, response in zip(self._replies, self._cores, returned, strict=True):
            if response is None or reply.closed:
                continue  # it is, or will be, answered through its sender
            answer = reply.core(response, final=True)
            if not reply.places:
                answer = self._stub.find_parts(answer, core)
            self._collected.append((reply, answer))

    def fail(self, error: BaseException) -> None:
        """The model, or what it returned, is at fault."""
        self._problem = _text(error)

    def finish(self) -> list[Buffer]:
        """The responses, and that the next batch may come."""
        again = self._rescheduled()
        headers, payload, failures = self._pack()
        self._finished = time.monotonic_ns()
        self._waited += self._stub.waited
        times = self._begun, self._started, self._finished, self._waited
        header = (self._number, *times, headers)
        return again + encode(Kind.EXECUTED, header, payload) + failures

    def failures(self) -> list[Buffer]:
        """Word of requests that failed; the others are answered by their senders."""
        return self._pack()[2]

    def _rescheduled(self) -> list[Buffer]:
        """Word of the requests that shall come again; before that of the end of their execution."""
        parts: list[Buffer] = []
        for reply, request in zip(self._replies, self.requests, strict=True):
            if request.rescheduled and not reply.closed and not reply.cancelled:
                parts += encode(Kind.RESCHEDULE, reply.number)
        return parts

    def _pack(self) -> tuple[list[tuple[int, Any]], list[Buffer], list[Buffer]]:
        """The responses' headers and bytes, and word of those that fail."""
        self.requests, self._cores = [], []  # so that nobody sees inputs that are outputs too
        headers: list[tuple[int, Any]] = []
        payload: list[Buffer] = []
        collected = self._collected
        try:
            while collected:
                reply, core = collected[0]
                packed = self._stub.pack_response(core, payload, reply.places)
                collected.popleft()
                headers.append((reply.number, packed))
                reply.closed = True
                self._stub.forget(reply.number)
        except Exception as error:  # a response may be unfit to travel in any way
            self._problem = self._problem or _text(error)
        for _, core in collected:
            self._stub.keep_parts(core)
        return headers, payload, [] if self._problem is None else self._failures(self._problem)

    def _failures(self, problem: str) -> list[Buffer]:
        """The same error for every request that has no final answer yet (contract PY-09)."""
        text = printable(problem)
        message = f"Failed to process the request(s) for model '{self._name}', message: {text}"
        parts: list[Buffer] = []
        for reply in self._replies:
            if not reply.closed:
                reply.closed = True
                self._stub.forget(reply.number)
                parts += encode(Kind.ERROR, (reply.number, InternalError.code, message))
        return parts


def _check(requests: Sequence[InferenceRequest], answers: Any) -> None:
    if not isinstance(answers, list):
        raise InternalError(f"Expected a list in the execute return, found type '{type(answers)}'.")
    if len(answers) != len(requests):
        raise InternalError(
            "Number of InferenceResponse objects do not match the number of InferenceRequest"
            f" objects. InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s)"
            f" size is:{len(answers)}\n"
        )
    for request, response in zip(requests, answers, strict=True):
        if response is not None and request.rescheduled:
            raise InternalError(
                "Expected a None object in the execute function return list for reschduled"
                f" request, found type '{type(response)}'."
            )
        if response is not None and not isinstance(response, InferenceResponse):
            raise InternalError(
                "Expected an 'InferenceResponse' object in the execute function return list,"
                f" found type '{type(response)}'."
            )


def _text(error: BaseException) -> str:
    return error.message if isinstance(error, InferenceError) else describe(error)
