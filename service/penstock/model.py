"""Models as asyncio classes, for authors who start fresh. A `model.py` holds one of them:

    class Double(Model):
        config = ModelConfig(
            input=(Input("IN", DataType.FP32, dims=(-1,)),),
            output=(Output("OUT", DataType.FP32, dims=(-1,)),),
        )

        async def infer(self, request: Request) -> Response:
            return Response({"OUT": request["IN"] * 2})

A model whose `infer` is an async generator answers with a stream. No server is needed to try one:
make the object, and requests with `Request.of`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from penstock.core import dlpack
from penstock.core.config import (
    DynamicBatching,
    Input,
    InstanceGroup,
    InstanceKind,
    ModelConfig,
    Output,
)
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
]


class SupportsDLPack(Protocol):
    """A tensor of another library, such as torch."""

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


Value = Tensor | Array | SupportsDLPack | str | bytes | bool | int | float | Sequence[Any]
"""What may stand for a tensor: a string or number is one element, a sequence an array of them."""


class _Tensors(ABC):
    """Named tensors, as requests and responses hold them."""

    __slots__ = ()

    @abstractmethod
    def tensor(self, name: str) -> Tensor:
        """The tensor with its datatype, shape and bytes; raises `KeyError` for none."""

    @abstractmethod
    def __contains__(self, name: object) -> bool: ...

    def __getitem__(self, name: str) -> Array:
        """The tensor as an array over the same memory; BYTES as `bytes` objects."""
        return self.tensor(name).numpy()

    def get(self, name: str) -> Array | None:
        """As `[name]`; `None` for one that is not there, such as an optional input."""
        if name not in self:
            return None
        return self[name]

    def texts(self, name: str) -> list[str]:
        """The elements of a BYTES tensor, flat, as text; makes no array."""
        return [element.decode() for element in self.tensor(name).elements()]

    def text(self, name: str) -> str:
        """The only element of a BYTES tensor, as text."""
        texts = self.texts(name)
        if len(texts) != 1:
            raise InvalidRequestError(f"'{name}' must be one string, not {len(texts)}")
        return texts[0]


@dataclass(frozen=True, slots=True, eq=False)
class Request(_Tensors):
    """One request. Its tensors are `request["NAME"]`; everything else is in `core`."""

    core: InferenceRequest

    @classmethod
    def of(cls, inputs: Mapping[str, Value], **fields: Any) -> Request:
        """A request with these inputs, for tests; `fields` are those of `InferenceRequest`."""
        tensors = {name: as_tensor(value) for name, value in inputs.items()}
        return cls(InferenceRequest(fields.pop("model_name", ""), inputs=tensors, **fields))

    def tensor(self, name: str) -> Tensor:
        return self.core.inputs[name]

    def __contains__(self, name: object) -> bool:
        return name in self.core.inputs

    @property
    def id(self) -> str:
        return self.core.id

    @property
    def parameters(self) -> Parameters:
        return self.core.parameters


@dataclass(frozen=True, slots=True, eq=False)
class Response(_Tensors):
    """One response: outputs by name, and parameters for the client."""

    outputs: Mapping[str, Value] = field(default_factory=dict)
    parameters: Parameters = field(default_factory=dict)

    def tensor(self, name: str) -> Tensor:
        return as_tensor(self.outputs[name])

    def __contains__(self, name: object) -> bool:
        return name in self.outputs


Calls = Callable[[InferenceRequest, bool], AsyncGenerator[InferenceResponse, None]]
"""Asks another model, which may be decoupled or not; raises the error that it answers with."""


@dataclass(frozen=True, slots=True)
class Context:
    """What an instance is told about itself, and its way to the other models of the server.

    `path` is the directory of the version, where `model.py` is.
    """

    name: str
    path: Path
    config: ModelConfig
    version: int = 1
    kind: str = "KIND_CPU"
    device_id: int = 0
    calls: Calls | None = None

    async def infer(self, model_name: str, inputs: Mapping[str, Value], **fields: Any) -> Response:
        """The response of another model; raises the `InferenceError` that it answers with.

        `fields` are those of `InferenceRequest`: `model_version`, `parameters`, `timeout`, ...
        """
        async with aclosing(self._ask(model_name, inputs, fields, False)) as responses:
            async for response in responses:
                return response
        raise InternalError(f"model '{model_name}' ended without a response")

    async def stream(
        self, model_name: str, inputs: Mapping[str, Value], **fields: Any
    ) -> AsyncGenerator[Response, None]:
        """The responses of another model, decoupled or not; closing this early cancels it."""
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

    `infer` answers one request: a coroutine with one response, an async generator with as many as
    it yields. Requests overlap at every `await`; the client's leaving cancels theirs, so `finally`
    is where work stops. Who can compute many requests in one go overrides `infer_batch` instead.

    An `InferenceError` reaches the client with its code and text; any other exception as INTERNAL,
    with its traceback in the server's log.
    """

    config: ClassVar[ModelConfig] = ModelConfig()
    """What `config.pbtxt` would say. A file adds to it or goes above it, but cannot contradict
    the tensors."""

    async def load(self, context: Context) -> None:
        """Get ready to answer; raise to refuse."""

    def infer(self, request: Request) -> Awaitable[Response] | AsyncIterator[Response]:
        """Answer one request."""
        raise NotImplementedError

    async def infer_batch(self, requests: Sequence[Request]) -> Sequence[Response]:
        """Answer the requests of one batch, in order."""
        raise NotImplementedError

    async def ready(self) -> bool:
        """Whether the model can serve now."""
        return True

    async def unload(self) -> None:
        """Release what `load` took."""


def as_tensor(value: Value, datatype: DataType | None = None, rank: int = 1) -> Tensor:
    """The tensor that `value` stands for; a single element gets `rank` dimensions.

    `datatype` is what Python's own numbers become; a value with a datatype of its own keeps it.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray) and value.ndim:
        return Tensor.from_numpy(value, _bits(value, datatype))
    if isinstance(value, str | bytes):
        return Tensor.from_strings([value], (1,) * rank)
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic):
        return dlpack.imported(value)
    if datatype is DataType.BF16:
        raise InternalError("BF16 numbers must come as a tensor, or as an array of their bits")
    array = np.asarray(value, dtype=datatype and datatype.numpy)
    return Tensor.from_numpy(array if array.ndim else array.reshape((1,) * rank))


def _bits(array: Array, datatype: DataType | None) -> DataType | None:
    """BF16 for the bits of such numbers, which only the one who asks for them can know."""
    return datatype if datatype is DataType.BF16 and array.dtype == np.uint16 else None
