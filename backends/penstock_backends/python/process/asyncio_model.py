"""Wrapper that calls a `penstock.model.Model` on the event loop of the model process.

The process awaits `AsyncioModel.load`, then `execute` for every batch, each in a task of its own,
and `unload` in the end.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Protocol, cast

from penstock.core.config import ModelConfig, ModelOutput
from penstock.core.errors import InferenceError, InternalError, ModelLoadError, as_inference_error
from penstock.core.log.log_throttle import repeat_note
from penstock.core.request import InferenceRequest as CoreRequest
from penstock.core.request import InferenceResponse as CoreResponse
from penstock.core.tensor import Tensor as CoreTensor
from penstock.model import Context, Model, Request, Response, Value, as_tensor
from penstock_backends.python.pb_utils import runtime
from penstock_backends.python.pb_utils.responses import InferenceResponse, TritonError
from penstock_backends.python.pb_utils.tensor import Tensor
from penstock_backends.python.process.asyncio_config import is_stream
from penstock_backends.python.process.current_trace import Serving
from penstock_backends.python.process.plain_methods import MethodCalls, is_plain_stream
from penstock_backends.python.process.traceback_text import describe, place


class AsyncReply(runtime.Reply, Protocol):
    """A reply for code on an event loop, which must not block.

    `cancelled` is true once the client has left, which reads no further response.
    """

    cancelled: bool

    async def wait_for_room(self) -> None:
        """Wait until one more response may be sent."""

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Call `callback` on the event loop when the model should stop, or at once if it should."""


Batch = Sequence[tuple[AsyncReply, CoreRequest]]


class AsyncioModel:
    """An instance of the model's class; sends its responses to the replies of a batch."""

    def __init__(self, cls: type[Model], config: ModelConfig) -> None:
        self._model = cls()
        self._calls = MethodCalls()
        self._outputs = _Outputs(config)
        self._stream = is_stream(cls)
        self._plain_stream = is_plain_stream(cls.infer)
        self._together = cls.infer_batch is not Model.infer_batch
        if not self._together and cls.infer is Model.infer:
            raise ModelLoadError(f"'{cls.__name__}' has neither 'infer' nor 'infer_batch'")

    async def load(self, context: Context) -> None:
        await self._calls.call(self._model.load, context)

    @property
    def has_readiness(self) -> bool:
        """Whether the class has a `ready` of its own."""
        return type(self._model).ready is not Model.ready

    async def ready(self) -> object:
        """Whatever the model's `ready` returns; a plain one gets a thread, beside all `infer`."""
        ready: Any = self._model.ready
        if inspect.iscoroutinefunction(ready):
            return await ready()
        answer = await asyncio.to_thread(ready)
        return await answer if inspect.isawaitable(answer) else answer

    async def unload(self) -> None:
        await self._calls.call(self._model.unload)

    async def execute(self, batch: Batch) -> None:
        """Execute a batch; returns when all replies are complete."""
        if self._together:
            await self._execute_together(batch)
            return
        async with asyncio.TaskGroup() as answers:
            for reply, request in batch:
                traced = request.scope.timeline is not None
                execute = self._execute_traced if traced else self._execute_one
                answers.create_task(execute(reply, request))

    async def _execute_traced(self, reply: AsyncReply, request: CoreRequest) -> None:
        assert request.scope.timeline is not None
        with Serving([request.scope.timeline], 1):
            await self._execute_one(reply, request)

    async def _execute_one(self, reply: AsyncReply, request: CoreRequest) -> None:
        task = asyncio.current_task()
        assert task is not None
        # Not before the task runs: one that is cancelled earlier would send no reply.
        reply.on_cancel(task.cancel)
        try:
            if self._stream:
                await self._send_stream(reply, request)
            else:
                response = await self._calls.call(self._model.infer, Request(request))
                reply.send(self._outputs.convert(response, reply), final=True)
        except asyncio.CancelledError as error:
            reply.send(None if reply.cancelled else _failure(error), final=True)
            raise
        except GeneratorExit:
            raise
        except BaseException as error:  # a model may raise anything: exits, panics of Rust
            reply.send(_failure(error), final=True)

    async def _send_stream(self, reply: AsyncReply, request: CoreRequest) -> None:
        infer = self._model.infer
        stream = (
            self._calls.iterate(infer, Request(request))
            if self._plain_stream
            else cast(AsyncGenerator[Response, None], infer(Request(request)))
        )
        async with aclosing(stream) as responses:
            async for response in responses:
                await reply.wait_for_room()
                reply.send(self._outputs.convert(response, reply), final=False)
        reply.send(None, final=True)

    async def _execute_together(self, batch: Batch) -> None:
        try:
            answers = await self._infer_batch([core for _, core in batch])
            if len(answers) != len(batch):
                count = f"{len(answers)} responses for {len(batch)} requests"
                raise InternalError(f"'infer_batch' returned {count}")
        except GeneratorExit:
            raise
        except BaseException as error:  # a model may raise anything
            failure = _failure(error)
            for reply, _ in batch:
                reply.send(failure, final=True)
            return
        for (reply, _), response in zip(batch, answers, strict=True):
            reply.send(self._outputs.convert(response, reply), final=True)

    async def _infer_batch(self, batch: Sequence[CoreRequest]) -> Sequence[Response]:
        requests = [Request(core) for core in batch]
        answers: Sequence[Response]
        if timelines := [core.scope.timeline for core in batch if core.scope.timeline is not None]:
            with Serving(timelines, len(batch)):
                answers = await self._calls.call(self._model.infer_batch, requests)
        else:
            answers = await self._calls.call(self._model.infer_batch, requests)
        return answers


class _Outputs:
    """Converts the values of a model's response to tensors as the configuration declares them."""

    def __init__(self, config: ModelConfig) -> None:
        self._declared = config.outputs_by_name
        self._batched = config.max_batch_size > 0

    def convert(self, response: object, reply: runtime.Reply) -> InferenceResponse:
        """The response with the requested outputs, or with an error if it is invalid."""
        try:
            if not isinstance(response, Response):
                kind = type(response).__name__
                raise InternalError(f"the model answered with {kind}, not a Response")
            for name in response.outputs:
                self._declaration(name)
            tensors = [
                Tensor.over(name, self._tensor(name, value))
                for name, value in response.outputs.items()
                if name in reply.outputs
            ]
            return InferenceResponse(tensors, parameters=response.parameters)
        except Exception as error:  # the model may return anything
            return _failure(error)

    def _tensor(self, name: str, value: Value) -> CoreTensor:
        declared = self._declaration(name)
        rank = len(declared.dims) + self._batched
        tensor = as_tensor(value, declared.data_type, rank)
        if tensor.datatype is not declared.data_type:
            wanted = declared.data_type.value if declared.data_type else "a datatype"
            raise InternalError(f"output '{name}' is {tensor.datatype.value}, not {wanted}")
        return tensor

    def _declaration(self, name: str) -> ModelOutput:
        found = self._declared.get(name)
        if found is None:
            raise InternalError(f"the model has no output '{name}'")
        return found


def _failure(error: BaseException) -> InferenceResponse:
    """The error response of an exception; unexpected exceptions are logged."""
    if not isinstance(error, InferenceError | asyncio.CancelledError):
        where = place(error)
        if (note := repeat_note(type(error).__name__, *where)) is not None:
            runtime.current().log(logging.ERROR, f"{note} {describe(error)}".lstrip(), *where)
    seen = as_inference_error(error)
    return InferenceResponse(error=TritonError.from_name(seen.code, seen.message))


# -- other models --------------------------------------------------------------------------------


async def call_model(request: CoreRequest, decoupled: bool) -> AsyncGenerator[CoreResponse, None]:
    """Calls of a `Context` to other models: through the server, as those of `pb_utils`."""
    call = runtime.current().call(request, decoupled=decoupled, on_loop=True)
    ended = False
    try:
        while (response := await call.next_async()) is not None:
            yield _core_response(response)
        ended = True
    finally:
        if not ended:
            call.discard()


def _core_response(response: InferenceResponse) -> CoreResponse:
    error = response.error()
    if error is not None:
        raise error.core
    tensors = {tensor.name(): tensor.core for tensor in response.output_tensors()}
    return CoreResponse(tensors, response.core_parameters)
