"""Execution of one batch: from its message to the messages with its responses."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock.core.buffer import Buffer
from penstock.core.errors import InferenceError, InternalError
from penstock.core.log.log_fields import request_fields
from penstock.core.log.log_throttle import repeat_note
from penstock.core.request import InferenceRequest as CoreRequest
from penstock.core.request import InferenceResponse as CoreResponse
from penstock.hosting.link.link import encode_answer
from penstock.hosting.link.messages import Done, Execute, Kind, NumberedResponse
from penstock_backends.python.pb_utils.request import InferenceRequest
from penstock_backends.python.pb_utils.responses import InferenceResponse
from penstock_backends.python.process.model_link import ModelLink
from penstock_backends.python.process.replies import PendingReply, ReplyPolicy
from penstock_backends.python.process.reply_table import ReplyTable
from penstock_backends.python.process.traceback_text import describe, place, printable

_QUICK = 100_000
"""Nanoseconds of an execution below which its answers wait for those of the next."""


class Execution:
    """The requests of a batch in execution, and the model's responses to them.

    `collect` takes the result of `execute`, or `fail` the exception that it raised. Then `finish`
    returns the messages to the server; `failures` does for batches that overlap with others.
    `timelines` are those of its traced requests.
    """

    def __init__(
        self,
        link: ModelLink,
        table: ReplyTable,
        name: str,
        policy: ReplyPolicy,
        header: Execute,
        payload: memoryview,
    ) -> None:
        self._number, packed = header
        link.begin_batch(self._number)
        self._begun = time.monotonic_ns()
        self._finished = 0
        self._waited = -link.waited
        self._link = link
        self._table = table
        self._name = name
        self._policy = policy
        accepted = table.accept(packed, payload, policy)
        self._replies = [reply for reply, _ in accepted]
        self._cores = [core for _, core in accepted]
        self.requests = [InferenceRequest.received(core, reply) for reply, core in accepted]
        self.timelines = [
            core.scope.timeline for core in self._cores if core.scope.timeline is not None
        ]
        self._collected: deque[tuple[PendingReply, CoreResponse]] = deque()
        self._problem: str | None = None
        self._unanswered: list[PendingReply] = []
        self._started = time.monotonic_ns()

    @property
    def quick(self) -> bool:
        """Whether it took so little time that its responses may wait for those of the next batch.

        Time spent waiting for other models does not count: the next batch will call them too, and
        held responses leave together with its calls.
        """
        return self._finished - self._begun - self._waited <= _QUICK

    def done_header(self) -> Done:
        """The header of `DONE` for an execution in flight, while others may begin."""
        return self._number, self._begun, self._started, time.monotonic_ns(), 0

    def collect(self, returned: Any) -> None:
        """Collect the responses that `execute` returned, by position; contract PY-04 and PY-10.

        A request without one is answered by its sender, and fails if the model has not taken that.
        """
        if self._policy.decoupled:
            if returned is not None:
                raise InternalError(
                    f"Python model '{self._name}' is using the decoupled mode and the execute"
                    " function must return None."
                )
            return
        answers = _checked(self.requests, returned)
        for request, reply, core, response in zip(
            self.requests, self._replies, self._cores, answers, strict=True
        ):
            if response is not None:
                self._take(reply, core, response)
            elif not (request.has_sender or request.rescheduled or reply.cancelled):
                self._unanswered.append(reply)
        if self._unanswered:
            self._problem = self._report(_no_list(None) if returned is None else _no_response(None))

    def _take(self, reply: PendingReply, core: CoreRequest, response: InferenceResponse) -> None:
        answer = reply.to_core(response, final=True)
        if not reply.claim():
            raise InternalError(
                "Unable to send response. Non-decoupled model cannot send more than one response."
            )
        if not reply.places:
            answer = self._link.find_parts(answer, core.inputs)
        self._collected.append((reply, answer))

    def fail(self, error: BaseException) -> None:
        """Fail the unanswered requests: the model raised, or returned something invalid."""
        self._give_up()
        self._unanswered = self._replies
        self._problem = self._report(error)

    def _give_up(self) -> None:
        """Fail the requests whose responses are collected."""
        for reply, core in self._collected:
            reply.give_up()
            self._link.codec.keep_parts(core.outputs)
            self._unanswered.append(reply)
        self._collected.clear()

    def _report(self, error: BaseException) -> str:
        """The message of an error for clients; logged once, also if no client is left (PY-09)."""
        self._link.exit_if_fork()
        text = error.message if isinstance(error, InferenceError) else describe(error)
        message = (
            f"Failed to process the request(s) for model '{self._name}', message: {printable(text)}"
        )
        where = place(error)
        note = repeat_note(type(error).__name__, *where)
        if note is not None:
            self._link.log(logging.ERROR, f"{note} {message}".lstrip(), *where, self._log_fields())
        return message

    def _log_fields(self) -> dict[str, str]:
        """The log fields of a line about the execution: those of its only request, if any."""
        return request_fields(self._cores[0]) if len(self._cores) == 1 else {}

    def finish(self) -> list[Buffer]:
        """The messages with the responses; they ask for the next batch."""
        again = self._recorded() + self._rescheduled()
        headers, payload, ends, failures = self._pack()
        self._finished = time.monotonic_ns()
        self._waited += self._link.waited
        times = self._begun, self._started, self._finished, self._waited
        header = (self._number, *times, headers)
        try:
            executed = encode_answer(Kind.EXECUTED, header, payload)
        except ValueError:  # too much to be sent in one message
            executed = encode_answer(Kind.EXECUTED, (self._number, *times, []))
            for answer, begin, end in zip(headers, [0, *ends], ends, strict=False):
                executed += self._alone(answer, payload[begin:end])
        return again + executed + failures

    def _alone(self, answer: NumberedResponse, payload: list[Buffer]) -> list[Buffer]:
        """A response in a message of its own; if that is too large, an error."""
        try:
            return encode_answer(Kind.RESPONSE, answer, payload)
        except ValueError as error:
            number, problem = answer[0], self._report(error)
            return encode_answer(Kind.ERROR, (number, InternalError.code, problem))

    def failures(self) -> list[Buffer]:
        """The errors of failed requests; the others are answered by their response senders."""
        return self._recorded() + self._pack()[3]

    def _recorded(self) -> list[Buffer]:
        """The messages with recordings of traced requests, which precede their responses.

        Response senders tell it themselves.
        """
        parts: list[Buffer] = []
        if self.timelines:
            for reply, request in zip(self._replies, self.requests, strict=True):
                if not request.has_sender or self._problem is not None:
                    for kind, header in reply.recorded():
                        parts += encode_answer(kind, header)
        return parts

    def _rescheduled(self) -> list[Buffer]:
        """The notifications of rescheduled requests, which precede the end of the execution."""
        parts: list[Buffer] = []
        for reply, request in zip(self._replies, self.requests, strict=True):
            if request.rescheduled and not reply.closed and not reply.cancelled:
                parts += encode_answer(Kind.RESCHEDULE, reply.number)
        return parts

    def _pack(self) -> tuple[list[NumberedResponse], list[Buffer], list[int], list[Buffer]]:
        """Headers of the responses, their bytes, and where those of each end among them; then the
        errors of requests that fail.
        """
        self.requests, self._cores = [], []  # so that no request keeps inputs that are outputs too
        headers: list[NumberedResponse] = []
        payload: list[Buffer] = []
        ends: list[int] = []
        collected = self._collected
        try:
            while collected:
                reply, core = collected[0]
                packed = self._link.pack_response(core, payload, reply.places)
                collected.popleft()
                headers.append((reply.number, packed))
                ends.append(len(payload))
                self._table.forget(reply.number)
        except Exception as error:  # a response may fail to encode in any way
            self._give_up()
            self._problem = self._report(error)
        return headers, payload, ends, self._failures()

    def _failures(self) -> list[Buffer]:
        """The same error for every request that fails and has no final answer yet."""
        parts: list[Buffer] = []
        for reply in self._unanswered:
            if not reply.closed:
                reply.closed = True
                self._table.forget(reply.number)
                parts += encode_answer(
                    Kind.ERROR, (reply.number, InternalError.code, self._problem)
                )
        return parts


def _checked(requests: Sequence[InferenceRequest], answers: Any) -> list[Any]:
    """A response or `None` for each request; raises for anything else (PY-10)."""
    if answers is None:
        return [None] * len(requests)
    if not isinstance(answers, list):
        raise _no_list(answers)
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
            raise _no_response(response)
    return answers


def _no_list(returned: object) -> InternalError:
    return InternalError(f"Expected a list in the execute return, found type '{type(returned)}'.")


def _no_response(returned: object) -> InternalError:
    return InternalError(
        "Expected an 'InferenceResponse' object in the execute function return list,"
        f" found type '{type(returned)}'."
    )
