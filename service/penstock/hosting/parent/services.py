"""Serves the calls of a model process: other models (BLS), model control, and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from penstock.core.buffer import Buffer
from penstock.core.call_chain import CallingInstance, NestedCall
from penstock.core.errors import (
    InferenceError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
    as_inference_error,
    call_refused,
)
from penstock.core.request import Draw, InferenceRequest, RequestScope, Sender
from penstock.core.stream import ResponseStream
from penstock.core.timeline import Timeline
from penstock.hosting.link.link import Handler
from penstock.hosting.link.memory import SharedMemory
from penstock.hosting.link.messages import RETIRE, Kind, PackedResponse, unpack_request
from penstock.hosting.link.messages import Call as CallMessage
from penstock.hosting.link.response_sender import EndKinds, ResponseSenders, Send
from penstock.inflight.inference import Inference

_END_KINDS = EndKinds(Kind.CALL_END, Kind.CALL_ERROR)


class ModelServices(Protocol):
    """The interface of the server to model processes."""

    @property
    def propagates(self) -> bool:
        """Whether the context of traces is forwarded to models, which may add spans."""

    def infer(self, request: InferenceRequest) -> ResponseStream:
        """Admit a request; raises what admission refuses."""

    def decoupled(self, name: str, version: str) -> bool:
        """Whether requests to the model may get any number of responses."""

    async def control(self, verb: str, arguments: Sequence[Any]) -> Any:
        """Load, unload or ask for a model."""

    def metric(self, owner: str, operation: str, arguments: Sequence[Any]) -> Any:
        """Update or read a custom metric that a model process, the owner, has made."""

    def ended(self, owner: str) -> None:
        """A model process has ended."""


class ServedCalls:
    """The calls of one model process that the server is answering.

    `executing` returns the batch for which it calls, and `timeline_of` the timeline of a request by
    its number on the link, if it is traced; calls of a `decoupled` model may belong to
    requests whose execution is over. Only the `model` itself can be retired.
    """

    def __init__(
        self,
        services: ModelServices,
        caller: CallingInstance,
        process: int,
        memory: SharedMemory,
        send: Send,
        executing: Callable[[], Sequence[Inference]] = tuple,
        timeline_of: Callable[[int], Timeline | None] = lambda _: None,
        *,
        model: str = "",
        decoupled: bool = False,
    ) -> None:
        self._services = services
        self._caller = caller
        self._executing = executing
        self._timeline_of = timeline_of
        self._decoupled = decoupled
        self._model = model
        self._owner = f"{caller.instance} {process}"  # a reload has the same instance names
        self._memory = memory
        self._send = send
        self._calls = ResponseSenders(_END_KINDS, self._respond, send, memory)
        self._tasks: set[asyncio.Task[None]] = set()
        self.handlers: dict[int, Handler] = {
            Kind.CALL: self._call,
            Kind.CALL_TAKEN: lambda header, _: self._calls.taken(*header),
            Kind.CALL_CANCEL: lambda number, _: self._cancel(number),
            Kind.CALL_STOP: lambda number, _: self._calls.stop(number),
            Kind.CONTROL: lambda header, _: self._start(self._control(*header)),
            Kind.METRIC: lambda header, _: self._metric(*header),
        }

    def __len__(self) -> int:
        """Number of calls in flight."""
        return len(self._calls)

    def close(self) -> None:
        """The process is gone: cancel its calls."""
        self._calls.close()
        for task in self._tasks:
            task.cancel()
        self._services.ended(self._owner)

    def _call(self, header: CallMessage, payload: memoryview) -> None:
        decoupled, holds, packed = header
        number, request, _ = unpack_request(packed, payload, 0, self._memory.codec)
        if number in self._calls:
            raise ValueError(f"a second call of number {number}, while the first is not answered")
        scope = request.scope
        scope.sender, scope.waited = None, 0  # whose request it is, the server knows
        if (timeline := self._timeline(packed[-1])) is not None:
            scope.timeline = timeline
        try:
            self._check_policy(request, decoupled)
            self._chain(scope, holds=holds)
            stream = self._services.infer(request)
        except InferenceError as error:
            text = call_refused(request.model_name, error.message)
            self._send(Kind.CALL_ERROR, (number, error.code, text))
            return
        self._calls.open(number).connect(stream)

    def _cancel(self, number: int) -> None:
        """Cancel a call; the confirmation wakes the thread that waited for it."""
        if number in self._calls:
            self._calls.cancel(number)
            self._send(Kind.CALL_END, number)

    def _timeline(self, number: int | None) -> Timeline | None:
        """The timeline that a call belongs to: that of the request which the model names.

        Where it names none, that of the only request that it can have called for. A number that is
        not in flight, any more or at all, is nobody's.
        """
        if number:
            return self._timeline_of(number)
        batch = () if self._decoupled else self._executing()
        return batch[0].timeline if len(batch) == 1 else None

    def _chain(self, scope: RequestScope, *, holds: bool) -> None:
        """Note a call's call chain, for cycle detection, its inherited deadline, sender and draw.

        The deadline is the latest of the batch: after it no client waits for the answer. The sender
        and the draw are those of the batch, where it has one only.
        """
        batch = self._executing()
        if not batch:
            return
        former: dict[NestedCall, None] = {}
        for inference in batch:
            former |= dict.fromkeys(inference.request.scope.call_chain)
            if inference.wait is not None:
                inference.wait.executor = self._caller
        scope.deadline = None if self._decoupled else _latest(batch)
        scope.call_chain = *former, NestedCall(self._caller, blocking=holds)
        scope.sender = _common_sender(batch)
        scope.draw = _common_draw(batch)

    def _respond(self, number: int, packed: PackedResponse, payload: list[Buffer]) -> None:
        self._send(Kind.CALLED, (number, packed), payload)

    def _check_policy(self, request: InferenceRequest, decoupled: bool) -> None:
        if self._is_decoupled(request.model_name, request.model_version) and not decoupled:
            raise InvalidRequestError(
                f"Model {request.model_name} is using the decoupled. The current BLS request call"
                " doesn't support models using the decoupled transaction policy. Please use"
                " 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled"
                " models.'"
            )

    def _is_decoupled(self, name: str, version: str) -> bool:
        try:
            return self._services.decoupled(name, version)
        except (NotFoundError, UnavailableError) as error:
            problem = f"Failed for execute the inference request. Model '{name}' is not ready."
            raise type(error)(problem) from error

    async def _control(self, number: int, verb: str, arguments: Sequence[Any]) -> None:
        try:
            given = [self._model] if verb == RETIRE else arguments
            value = await self._services.control(verb, given)
        except Exception as error:  # whatever loading a model may raise
            self._send(Kind.CONTROLLED, (number, None, self._problem(error)))
        else:
            self._send(Kind.CONTROLLED, (number, value, None))

    def _metric(self, number: int, operation: str, arguments: Sequence[Any]) -> None:
        """Number 0 asks for no answer."""
        value, problem = None, None
        try:
            value = self._services.metric(self._owner, operation, arguments)
        except Exception as error:  # whatever a library of metrics may raise
            problem = self._problem(error)
        if number:
            self._send(Kind.CONTROLLED, (number, value, problem))

    def _problem(self, error: Exception) -> str:
        text = as_inference_error(error).message
        return f"Failed to process the request for model '{self._caller.instance}', message: {text}"

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _common_sender(batch: Sequence[Inference]) -> Sender | None:
    """The sender of all requests of the batch; `None` if they have several, or none."""
    senders = {inference.request.scope.sender for inference in batch}
    return senders.pop() if len(senders) == 1 else None


def _common_draw(batch: Sequence[Inference]) -> Draw | None:
    """The draw of all requests of the batch; `None` if they have several, or none."""
    if len(batch) == 1:
        return batch[0].request.scope.common_draw()
    draws = {inference.request.scope.draw for inference in batch}
    return draws.pop() if len(draws) == 1 else None


def _latest(batch: Sequence[Inference]) -> float | None:
    """The latest deadline of the batch; `None` if a request of it has none."""
    deadlines = [inference.request.scope.deadline for inference in batch]
    known = [deadline for deadline in deadlines if deadline is not None]
    return max(known) if len(known) == len(deadlines) else None
