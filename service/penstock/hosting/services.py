"""What a model process may ask of the server: other models, and things about models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from penstock.core.backend import InstanceContext
from penstock.core.errors import InferenceError, InvalidRequestError
from penstock.core.relay import as_inference_error
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.hosting.memory import SharedMemory
from penstock.hosting.messages import WINDOW, Kind, pack_response, unpack_request

Send = Callable[..., None]


class ModelServices(Protocol):
    """The server, as a model process sees it; handed down by whoever owns both."""

    def infer(self, request: InferenceRequest) -> ResponseStream:
        """Admit a request; raises what admission refuses."""

    def decoupled(self, name: str, version: str) -> bool:
        """Whether requests to the model may get any number of responses."""

    async def control(self, verb: str, arguments: Sequence[Any]) -> Any:
        """Load, unload or ask for a model."""

    def metric(self, owner: str, operation: str, arguments: Sequence[Any]) -> Any:
        """Act on a metric that a model process, the owner, has made for itself."""

    def ended(self, owner: str) -> None:
        """A model process is gone."""


class ServedCalls:
    """The requests of one model process that the server is answering."""

    def __init__(
        self, services: ModelServices, context: InstanceContext, memory: SharedMemory, send: Send
    ) -> None:
        self._services = services
        self._instance = context.name
        self._owner = f"{context.name} {id(self):x}"  # a reload has the same instance names
        self._memory = memory
        self._send = send
        self._calls: dict[int, _Call] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.handlers: dict[int, Callable[[Any, memoryview], None]] = {
            Kind.CALL: self._call,
            Kind.CALL_TAKEN: self._taken,
            Kind.CALL_CANCEL: self._cancel,
            Kind.CONTROL: lambda header, _: self._start(self._control(*header)),
            Kind.METRIC: lambda header, _: self._metric(*header),
        }

    def close(self) -> None:
        """The process is gone: nobody waits for the answers."""
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.stream.close()
        for task in self._tasks:
            task.cancel()
        self._services.ended(self._owner)

    def _call(self, header: Any, payload: memoryview) -> None:
        decoupled, packed = header
        number, request, _ = unpack_request(packed, payload, 0, self._memory.exchange)
        try:
            self._check_policy(request, decoupled)
            stream = self._services.infer(request)
        except InferenceError as error:
            self._send(Kind.CALL_ERROR, (number, error.code, error.message))
            return
        self._calls[number] = _Call(self, number, stream)

    def _check_policy(self, request: InferenceRequest, decoupled: bool) -> None:
        name = request.model_name
        if self._services.decoupled(name, request.model_version) and not decoupled:
            raise InvalidRequestError(
                f"Model '{name}' is using the decoupled. The current BLS request call doesn't"
                " support models using the decoupled transaction policy. Please use"
                " 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled"
                " models."
            )

    def _taken(self, header: Any, _: memoryview) -> None:
        number, count = header
        if call := self._calls.get(number):
            call.taken(count)

    def _cancel(self, number: Any, _: memoryview) -> None:
        if call := self._calls.pop(number, None):
            call.stream.close()

    async def _control(self, number: int, verb: str, arguments: Sequence[Any]) -> None:
        try:
            value = await self._services.control(verb, arguments)
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
        return f"Failed to process the request for model '{self._instance}', message: {text}"

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def respond(self, number: int, response: InferenceResponse) -> None:
        """Send one response to the process."""
        header, payload = pack_response(response, self._memory.exchange)
        self._send(Kind.CALLED, (number, header), payload)

    def finish(self, number: int, error: InferenceError | None) -> None:
        """The call has no more responses."""
        self._calls.pop(number, None)
        if error is None:
            self._send(Kind.CALL_END, number)
        else:
            self._send(Kind.CALL_ERROR, (number, error.code, error.message))

    def forget(self, number: int) -> None:
        """The call has had its final response."""
        self._calls.pop(number, None)


class _Call:
    """One request of the process; its responses go there as far as it has room."""

    def __init__(self, calls: ServedCalls, number: int, stream: ResponseStream) -> None:
        self.stream = stream
        self._calls = calls
        self._number = number
        self._room = WINDOW
        self._done = False
        self._moving = False
        # Not before the call is known: what is here already may be its end.
        asyncio.get_running_loop().call_soon(stream.watch, self._move)

    def taken(self, count: int) -> None:
        """The model has taken `count` responses."""
        self._room += count
        self._move()

    def _move(self) -> None:
        if self._moving or self._done:  # called back from below, or all is said
            return
        self._moving = True
        try:
            self._send_ready()
        except Exception as error:  # a response may be unfit to travel in any way
            self.stream.close()
            self._end(as_inference_error(error))
        self._moving = False

    def _send_ready(self) -> None:
        while ready := self.stream.take(self._room):
            for response in ready:
                self._send(response)
        if not self._done and self.stream.exhausted:
            self._end(self.stream.error)

    def _send(self, response: InferenceResponse) -> None:
        self._room -= 1
        self._calls.respond(self._number, response)
        if response.final:
            self._done = True
            self._calls.forget(self._number)

    def _end(self, error: InferenceError | None) -> None:
        self._done = True
        self._calls.finish(self._number, error)
