"""The public interface for authors of models: a model is an asyncio class in a `model.py`.

    class Double(Model):
        config = ModelConfig(
            input=(Input("IN", DataType.FP32, dims=(-1,)),),
            output=(Output("OUT", DataType.FP32, dims=(-1,)),),
        )

        async def infer(self, request: Request) -> Response:
            return Response({"OUT": request["IN"] * 2})

A model whose `infer` is an async generator answers with a stream. `penstock serve model.py` serves
it; no server is needed to try one: make the object, and requests with `Request.of`. What is in
`__all__` here is stable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from penstock.core.config import (
    DynamicBatching,
    Input,
    InstanceGroup,
    InstanceKind,
    ModelConfig,
    Output,
)
from penstock.core.conversion import Value, as_tensor
from penstock.core.errors import (
    AlreadyExistsError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    RequestCancelledError,
    UnavailableError,
    UnsupportedError,
)
from penstock.core.request import InferenceRequest, InferenceResponse, Parameters
from penstock.core.tensor import Array, DataType, Tensor

__all__ = [
    "AlreadyExistsError",
    "Context",
    "DataType",
    "DynamicBatching",
    "InferenceError",
    "Input",
    "InstanceGroup",
    "InstanceKind",
    "InternalError",
    "InvalidRequestError",
    "Model",
    "ModelConfig",
    "NotFoundError",
    "Output",
    "Request",
    "RequestCancelledError",
    "Response",
    "Tensor",
    "UnavailableError",
    "UnsupportedError",
    "Value",
    "as_tensor",
]


class _Tensors(ABC):
    """Named tensors, as requests and responses hold them."""

    __slots__ = ()

    @abstractmethod
    def tensor(self, name: str) -> Tensor:
        """The tensor with its datatype, shape and bytes; raises `KeyError` for none."""

    @abstractmethod
    def __contains__(self, name: object) -> bool: ...

    def __getitem__(self, name: str) -> Array:
        """The tensor as an array over the same memory, which must not be written to.

        BYTES are `bytes` objects; BF16, which numpy does not know, is the bits of its numbers in
        uint16. Raises `KeyError` for a name that is not there.
        """
        return self.tensor(name).numpy()

    def get(self, name: str) -> Array | None:
        """As `[name]`, but `None` for a name that is not there, such as an optional input."""
        if name not in self:
            return None
        return self[name]

    def texts(self, name: str) -> list[str]:
        """The elements of a BYTES tensor, flat, decoded from UTF-8; makes no array."""
        return [element.decode() for element in self.tensor(name).elements()]

    def text(self, name: str) -> str:
        """The only element of a BYTES tensor, decoded; raises `InvalidRequestError` for others."""
        texts = self.texts(name)
        if len(texts) != 1:
            raise InvalidRequestError(f"'{name}' must be one string, not {len(texts)}")
        return texts[0]


@dataclass(frozen=True, slots=True, eq=False)
class Request(_Tensors):
    """One request. Its inputs are `request["NAME"]`.

    With `max_batch_size` above 0 each input has the batch dimension first, of one row or several;
    otherwise its shape is that of `dims`.
    """

    core: InferenceRequest
    """The request as the server has it, with what few models need: `requested_outputs`,
    `correlation_id`, `priority`, `timeout` (microseconds, 0 for none) and others."""

    @classmethod
    def of(cls, inputs: Mapping[str, Value], **fields: Any) -> Request:
        """A request with these inputs, for tests.

        `fields` are those of `InferenceRequest`, such as `id` and `parameters`.
        """
        tensors = {name: as_tensor(value) for name, value in inputs.items()}
        return cls(InferenceRequest(fields.pop("model_name", ""), inputs=tensors, **fields))

    def tensor(self, name: str) -> Tensor:
        """The input with its datatype, shape and bytes; raises `KeyError` for none."""
        return self.core.inputs[name]

    def __contains__(self, name: object) -> bool:
        return name in self.core.inputs

    @property
    def id(self) -> str:
        """The id that the client gave, empty for none; need not be unique."""
        return self.core.id

    @property
    def parameters(self) -> Parameters:
        """The client's parameters: booleans, integers, floats and strings by name."""
        return self.core.parameters

    @property
    def trace_context(self) -> Mapping[str, str]:
        """The W3C headers that make a call of another service part of this request's trace.

        `traceparent`, and `tracestate` and `baggage` where the client sent them. Empty unless the
        request is traced in the mode `opentelemetry`.
        """
        timeline = self.core.scope.timeline
        if timeline is None or not timeline.trace.propagated:
            return {}
        return timeline.context.headers

    def mark(self, activity: str) -> None:
        """Note in the request's trace that something happens now; nothing where it is not traced.

        Names that end in `_START` and `_END` are the two ends of a span, others are events.
        """
        self.core.mark(activity)


@dataclass(frozen=True, slots=True, eq=False)
class Response(_Tensors):
    """One response: outputs by name, and parameters for the client.

    An output must have the datatype that the configuration declares; numbers of Python take it,
    and a single element takes the declared number of dimensions. With `max_batch_size` above 0
    outputs have the batch dimension first, as many rows as the request's inputs.
    """

    outputs: Mapping[str, Value] = field(default_factory=dict)
    """Outputs that the client has not asked for are left out."""
    parameters: Parameters = field(default_factory=dict)
    """Booleans, integers, floats and strings by name."""

    def tensor(self, name: str) -> Tensor:
        """The output with its datatype, shape and bytes; raises `KeyError` for none."""
        return as_tensor(self.outputs[name])

    def __contains__(self, name: object) -> bool:
        return name in self.outputs


Calls = Callable[[InferenceRequest, bool], AsyncGenerator[InferenceResponse, None]]
"""Sends a request to another model; the flag allows any number of responses (a decoupled model).

Yields the responses and raises the model's error; closing the generator cancels the request.
"""


@dataclass(frozen=True, slots=True)
class Context:
    """The context of an instance: its placement, and calls of the server's other models."""

    name: str
    """The instance's name, such as `double_0_1`; unique among the model's instances."""
    path: Path
    """The directory of the version, where `model.py` and its other files are."""
    config: ModelConfig
    """The class's own configuration, with those of `config.pbtxt` and the server filled in."""
    version: int = 1
    kind: str = "KIND_CPU"
    """`KIND_CPU` or `KIND_GPU`: where the instance group places the instance."""
    device_id: int = 0
    """Number of the GPU, where `kind` is `KIND_GPU`."""
    calls: Calls | None = None
    """The interface by which `infer` and `stream` call other models: the server's, or a fake.

    Without it both raise `UnavailableError`."""

    async def infer(self, model_name: str, inputs: Mapping[str, Value], **fields: Any) -> Response:
        """The response of another model.

        `fields` are those of `InferenceRequest`: `model_version`, `parameters`, `timeout` (in
        microseconds that the request may wait in a queue), ... Cancelling this cancels the request.
        Raises the `InferenceError` that the model answers with: `NotFoundError` for a model that
        there is not, `UnavailableError` for one that is not ready, `InvalidRequestError` for
        wrong inputs.
        """
        async with aclosing(self._ask(model_name, inputs, fields, False)) as responses:
            async for response in responses:
                return response
        raise InternalError(f"model '{model_name}' ended without a response")

    async def stream(
        self, model_name: str, inputs: Mapping[str, Value], **fields: Any
    ) -> AsyncGenerator[Response, None]:
        """The responses of another model, decoupled or not; closing this early cancels the request.

        Arguments and errors are those of `infer`.
        """
        async with aclosing(self._ask(model_name, inputs, fields, True)) as responses:
            async for response in responses:
                yield response

    async def _ask(
        self, name: str, inputs: Mapping[str, Value], fields: Mapping[str, Any], decoupled: bool
    ) -> AsyncGenerator[Response, None]:
        if self.calls is None:
            raise UnavailableError("there is no server to ask for other models")
        request = Request.of(inputs, model_name=name, **fields).core
        async with aclosing(self.calls(request, decoupled)) as responses:
            async for response in responses:
                yield Response(response.outputs, response.parameters)


class Model:
    """A model; each instance is one object, alone in a process with an event loop of its own.

    A subclass overrides `infer` for requests one by one, or `infer_batch` for a batch in one go.
    Requests overlap at every `await`; when a client leaves, its request is cancelled, so `finally`
    is where work stops. Code that blocks holds up the instance's other requests.

    So methods that block, as those of numerical libraries do, are written without `async`: `load`,
    `infer`, `infer_batch` and `unload` then run on a thread, which is the instance's only one, so
    one after another. A plain `infer` that runs when its client leaves is not stopped; its response
    is dropped. It cannot call other models, since it cannot await `Context.infer`.

    An `InferenceError` reaches the client with its code and text; any other exception as INTERNAL,
    with its traceback in the server's log.
    """

    config: ClassVar[ModelConfig] = ModelConfig()
    """The configuration, as `config.pbtxt` would hold it, checked at construction (`ConfigError`).

    A file adds to it and overrides it, but cannot contradict the tensors."""

    async def load(self, context: Context) -> None:
        """Get ready to answer, before the first request; raise to refuse the load."""

    def infer(
        self, request: Request
    ) -> Awaitable[Response] | AsyncIterator[Response] | Response | Iterator[Response]:
        """Answer one request: a coroutine with one response, or an async generator of responses.

        The generator makes the model decoupled; it pauses at `yield` while the client reads slowly,
        and is closed when the client leaves. Both may be plain, without `async`: see `Model`.
        """
        raise NotImplementedError

    async def infer_batch(self, requests: Sequence[Request]) -> Sequence[Response]:
        """Answer the requests of one batch, in order, one response each.

        The server forms batches when the configuration has `max_batch_size` above 0 and
        `dynamic_batching`; else each is of one request. The requests are not joined: each has
        its own inputs, batch dimension included. Raising fails the whole batch; overriding this
        leaves `infer` unused, and a client that leaves does not cancel it.
        """
        raise NotImplementedError

    async def ready(self) -> bool:
        """Whether the model can serve now.

        Called for readiness requests of clients, one call at a time: on the model's event loop or,
        if it is plain, on a thread of its own beside all `infer`. Clients get "not ready" after 5
        seconds without an answer, and for anything but a bool: so look at what is known, and
        compute nothing.
        """
        return True

    async def unload(self) -> None:
        """Release what `load` took; no request is under way any more."""
